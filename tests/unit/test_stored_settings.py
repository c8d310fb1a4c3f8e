"""Address settings on the in-memory cluster: stored, listed, matched and deleted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from lvq_kafka import AddressSettings, LastValueQueue, QueueDefinition, Ttl
from lvq_kafka.core.queue.settings_by_pattern import SETTINGS_TOPIC
from lvq_kafka.errors import ConfigError, LVQError, QueueMismatch, TopicNotFound, Unauthorized
from lvq_kafka.testing import MemoryCluster

Declare = Callable[..., LastValueQueue[bytes]]

KEY = {"default-last-value-key": "ticker"}


@pytest.fixture
def settings(memory_cluster: MemoryCluster) -> Iterator[AddressSettings]:
    with AddressSettings(cluster=memory_cluster) as settings:
        yield settings


class TestSettings:
    def test_settings_are_listed_by_pattern(self, settings: AddressSettings) -> None:
        settings.set("stock.#", KEY)
        settings.set("#", {"max-ttl": 60})
        assert settings.all() == {"stock.#": KEY, "#": {"max-ttl": 60}}
        assert settings.delete("#")
        assert settings.all() == {"stock.#": KEY}

    def test_a_setting_replaces_the_one_with_its_pattern(self, settings: AddressSettings) -> None:
        settings.set("a", KEY)
        settings.set("a", {"max-ttl": 60})
        assert settings.all() == {"a": {"max-ttl": 60}}

    def test_deleting_says_whether_there_was_a_setting(self, settings: AddressSettings) -> None:
        assert not settings.delete("a")

    def test_the_settings_of_a_topic_come_most_specific_first(self, settings: AddressSettings) -> None:
        for pattern in ("#", "stock.*", "stock.us", "bond.#"):
            settings.set(pattern, KEY)
        assert list(settings.of("stock.us")) == ["stock.us", "stock.*", "#"]

    def test_reading_creates_no_topic(self, memory_cluster: MemoryCluster, settings: AddressSettings) -> None:
        assert not settings.all()
        with pytest.raises(TopicNotFound):
            memory_cluster.topics.describe(SETTINGS_TOPIC)

    def test_a_refused_setting_is_not_stored(self, settings: AddressSettings) -> None:
        with pytest.raises(ConfigError):
            settings.set("stock.#", {"default-last-value-kye": "ticker"})
        assert not settings.all()

    def test_an_unreadable_setting_stops_no_other(
        self, memory_cluster: MemoryCluster, settings: AddressSettings, caplog: pytest.LogCaptureFixture
    ) -> None:
        settings.set("stock.#", KEY)
        documents = {b"bad": b"{", b"new": b'{"version": 9}', b"\xff": b'{"version": 1}'}
        for pattern, document in documents.items():
            memory_cluster.writer().append(SETTINGS_TOPIC, pattern, document).result(5)
        with caplog.at_level(logging.WARNING, "lvq_kafka.settings"):
            assert settings.all() == settings.all() == {"stock.#": KEY}
        assert [record.getMessage().split(" in ")[0] for record in caplog.records] == [
            "left out: The setting bad",
            "left out: The setting new",
            "left out: The setting \\xff",
        ]
        assert settings.delete("bad")
        assert settings.delete("\udcff"), "it is named so in the list of what cannot be read"

    def test_of_many_unreadable_settings_a_few_are_named_and_the_others_counted(
        self, memory_cluster: MemoryCluster, settings: AddressSettings, caplog: pytest.LogCaptureFixture
    ) -> None:
        settings.set("stock.#", KEY)
        writer = memory_cluster.writer()
        for number in range(1_000):
            writer.append(SETTINGS_TOPIC, b"%d" % number, b"{").result(5)
        with caplog.at_level(logging.WARNING, "lvq_kafka.settings"):
            assert settings.all() == settings.all() == {"stock.#": KEY}
        assert len(caplog.records) == 11
        assert caplog.records[-1].getMessage() == "left out: 990 more settings that cannot be read"

    @pytest.mark.parametrize("value", [None, 5, b"a"])
    def test_a_pattern_or_topic_that_is_no_text_is_refused(self, settings: AddressSettings, value: Any) -> None:
        settings.set("a", KEY)
        for call in (lambda: settings.set(value, KEY), lambda: settings.delete(value), lambda: settings.of(value)):
            with pytest.raises(ConfigError, match="must be a str"):
                call()
        assert settings.all() == {"a": KEY}

    def test_a_pattern_that_utf8_cannot_encode_is_refused(self, settings: AddressSettings) -> None:
        for call in (lambda: settings.set("\ud800", KEY), lambda: settings.delete("\ud800")):
            with pytest.raises(LVQError):
                call()

    def test_a_user_without_the_right_to_write_is_told_which_one(
        self, memory_cluster: MemoryCluster, settings: AddressSettings
    ) -> None:
        settings.set("a", KEY)
        memory_cluster.fail_next("append", Unauthorized("No.", code="TOPIC_AUTHORIZATION_FAILED"))
        with pytest.raises(Unauthorized, match="Write on Topic _lvq_settings"):
            settings.set("a", KEY)

    def test_no_queue_can_have_the_topic_of_settings(self, memory_cluster: MemoryCluster) -> None:
        with pytest.raises(ConfigError, match="holds address settings"):
            LastValueQueue.declare("mine", topic=SETTINGS_TOPIC, key_header="k", cluster=memory_cluster)


class TestDeclare:
    """R37: a declaration takes what it does not say from the settings that match its topic."""

    @pytest.fixture
    def declared(self, memory_cluster: MemoryCluster) -> Iterator[Declare]:
        with ExitStack() as opened:
            yield lambda name, **options: opened.enter_context(
                LastValueQueue.declare(name, cluster=memory_cluster, **options)
            )

    def test_r37_a_queue_gets_what_its_declaration_leaves_open(
        self, settings: AddressSettings, declared: Declare
    ) -> None:
        settings.set("stock.#", {**KEY, "max-expiry-delay": 60_000})
        found = declared("stock.us").definition
        assert (found.key_header, found.ttl) == ("ticker", Ttl(maximum=60))
        assert found.from_settings == {"stock.#": {**KEY, "max-expiry-delay": 60_000}}

    def test_r37_a_setting_makes_queues_non_destructive(self, settings: AddressSettings, declared: Declare) -> None:
        settings.set("stock.#", {**KEY, "default-non-destructive": True})
        with pytest.raises(ConfigError, match="nothing can be consumed"):
            declared("stock.us").consumer()

    def test_r37_the_declaration_counts_where_it_says_something(
        self, settings: AddressSettings, declared: Declare
    ) -> None:
        settings.set("#", {**KEY, "max-ttl": 60, "order": "in-place", "default-non-destructive": True})
        found = declared("q", key_header="code", ttl=Ttl(maximum=5), order="tail", non_destructive=False).definition
        assert found == QueueDefinition(name="q", topic="q", key_header="code", ttl=Ttl(maximum=5))
        assert found.from_settings is None

    def test_r37_the_more_specific_setting_counts_option_by_option(
        self, settings: AddressSettings, declared: Declare
    ) -> None:
        settings.set("#", {**KEY, "max-ttl": 60, "expiry-topic": "expired"})
        settings.set("stock.#", {"max-expiry-delay": 30_000})
        declared("expired", options={"conflate": False})
        found = declared("stock.us").definition
        assert (found.key_header, found.ttl, found.expiry_topic) == ("ticker", Ttl(maximum=30), "expired")
        assert found.from_settings == {"stock.#": {"max-expiry-delay": 30_000}, "#": {**KEY, "expiry-topic": "expired"}}

    def test_r37_an_expiry_topic_for_all_is_for_queues_whose_messages_expire(
        self, settings: AddressSettings, declared: Declare
    ) -> None:
        settings.set("#", {**KEY, "expiry-address": "expired"})
        assert declared("expired").definition.expiry_topic is None
        assert declared("p").definition.expiry_topic is None
        assert declared("q", options={"ttl": True}).definition.expiry_topic == "expired"
        assert declared("r", ttl=Ttl(maximum=5)).definition.expiry_topic == "expired"

    def test_r37_the_topic_matches_and_not_the_name(self, settings: AddressSettings, declared: Declare) -> None:
        settings.set("stock.#", KEY)
        assert declared("mine", topic="stock.us").definition.key_header == "ticker"
        with pytest.raises(ConfigError, match="needs the name of its key header"):
            declared("stock.eu", topic="mine")

    def test_r37_a_standard_queue_takes_no_key_from_a_setting(
        self, settings: AddressSettings, declared: Declare
    ) -> None:
        settings.set("#", {**KEY, "max-ttl": 60})
        found = declared("q", conflate=False).definition
        assert (found.key_header, found.conflate, found.ttl) == (None, False, Ttl(maximum=60))

    def test_r37_a_key_outweighs_a_setting_that_asks_for_a_standard_queue(
        self, settings: AddressSettings, declared: Declare
    ) -> None:
        settings.set("#", {"default-last-value-queue": False})
        assert declared("q", options={"last-value-key": "code"}).definition.conflate
        assert not declared("r", options={}).definition.conflate

    def test_r37_settings_hold_for_queues_that_are_declared_later(
        self, settings: AddressSettings, declared: Declare
    ) -> None:
        first = declared("q", key_header="ticker").definition
        settings.set("#", {"max-ttl": 60})
        assert declared("q", key_header="ticker").definition == first
        assert declared("r", key_header="ticker").definition.ttl == Ttl(maximum=60)

    def test_r37_a_declaration_is_the_same_after_its_setting_has_changed(
        self, settings: AddressSettings, declared: Declare
    ) -> None:
        settings.set("#", {**KEY, "max-ttl": 60})
        first = declared("q")
        settings.set("#", {"max-ttl": 5})
        again = declared("q")
        assert again.definition == first.definition
        assert again.definition.from_settings == first.definition.from_settings
        assert again.declaration is not None
        assert not again.declaration.created_queue
        with pytest.raises(QueueMismatch, match="ttl"):
            declared("q", ttl=Ttl(maximum=5))

    def test_r37_an_error_names_the_setting_that_gave_an_option(
        self, settings: AddressSettings, declared: Declare
    ) -> None:
        settings.set("stock.#", {"max-ttl": 60})
        with pytest.raises(ConfigError) as refused:
            declared("stock.us", key_header="ticker", options={"default-ttl": 3600})
        assert refused.value.__notes__ == ["The setting stock.# gives max-ttl."]

    def test_r37_a_selector_of_a_setting_that_cannot_be_read_is_refused(
        self, memory_cluster: MemoryCluster, settings: AddressSettings, declared: Declare
    ) -> None:
        settings.set("#", {"selector": "a ="})
        with pytest.raises(ConfigError, match="The selector is wrong"):
            declared("q", key_header="ticker")
        with pytest.raises(ConfigError, match="The selector is wrong"):
            LastValueQueue.at("q?last-value-key=ticker", cluster=memory_cluster)

    def test_r37_settings_that_this_user_may_not_read_are_not_checked(
        self,
        memory_cluster: MemoryCluster,
        settings: AddressSettings,
        declared: Declare,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        settings.set("#", {"max-ttl": 60})
        start_offsets = type(memory_cluster.logs).start_offsets

        def refused(logs: Any, topic: str, **options: Any) -> dict[int, int]:
            if topic == SETTINGS_TOPIC:
                raise Unauthorized(f"Not allowed: {topic}.", code="TOPIC_AUTHORIZATION_FAILED")
            return start_offsets(logs, topic, **options)

        monkeypatch.setattr(type(memory_cluster.logs), "start_offsets", refused)
        queue = declared("q", key_header="ticker")
        assert queue.definition.ttl is None
        assert queue.declaration is not None
        assert any(SETTINGS_TOPIC in unchecked for unchecked in queue.declaration.unchecked)
