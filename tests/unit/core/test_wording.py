"""Options in errors and findings: named by what the reader typed."""

from __future__ import annotations

import copy
import pickle

import pytest

from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.topic_settings import Finding
from lvq_kafka.core.text.wording import BARE, Mention, in_python, renamed, worded
from lvq_kafka.core.timing.ttl import Ttl
from lvq_kafka.errors import ConfigError, LVQError


def shouted(mention: Mention) -> str:
    return f"<{mention.name.upper()}{'' if mention.value is BARE else f':{mention.value}'}>"


def test_an_option_has_its_value_where_it_is_first_mentioned() -> None:
    text = "`ttl` exceeds `max`. Leave `ttl` out."
    assert in_python(text, {"ttl": 5.0}) == "ttl=5.0 exceeds max. Leave ttl out."
    assert worded(text, shouted, {"ttl": 5.0}) == "<TTL:5.0> exceeds <MAX>. Leave <TTL> out."


def test_a_mention_may_have_a_value_of_its_own_and_words_for_python() -> None:
    text = "Give `order='priority'`, or `max-ttl=60|ttl=Ttl(maximum=60)`."
    assert in_python(text) == "Give order='priority', or ttl=Ttl(maximum=60)."
    assert worded(text, shouted) == "Give <ORDER:priority>, or <MAX-TTL:60>."


def test_a_value_that_only_python_can_express_is_left_out_of_a_mentioned_option() -> None:
    assert worded("Give `ttl=Ttl()`.", shouted) == "Give <TTL>."


def test_words_of_others_between_backticks_stay() -> None:
    """Of what a message quotes, only options that it is about are mentions."""
    error = ConfigError("`ttl` cannot be `min` or `lvq queues`.", options={"ttl": "`x`"})
    assert str(error) == "ttl='`x`' cannot be `min` or `lvq queues`."


@pytest.mark.parametrize("name", ["a`b=c`", "`b=c`", "a`key`", "a`b=", "`b={[]:1}`"])
def test_backticks_in_a_quoted_name_mention_nothing(name: str) -> None:
    error = ConfigError(f"`key` {name!r} is not the one of `order='tail'`.", options=["key"])
    assert str(error) == f"key {name!r} is not the one of order='tail'."
    assert error.worded(shouted) == f"<KEY> {name!r} is not the one of <ORDER:tail>."


@pytest.mark.parametrize("literal", ["{[]: 1}", "-" * 3000 + "1", "(" * 3000, "1+" * 3000 + "1"])
def test_text_of_others_that_is_no_literal_breaks_no_error(literal: str) -> None:
    assert in_python(f"What is `b={literal}`?") == f"What is b={literal}?"


def test_options_may_be_mentioned_by_the_names_that_set_them() -> None:
    given = {"minimum": ("minimumMessageTtl", "10")}
    assert renamed("`minimum` or `minimum=5`", given) == "`minimumMessageTtl` or `minimumMessageTtl='10'`"
    assert renamed("`minimum=5`", given, with_values=False) == "`minimum=5`"


@pytest.mark.parametrize("way", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"])
def test_an_error_can_still_be_worded_in_another_process(way: type) -> None:
    with pytest.raises(ConfigError) as caught:
        Ttl(minimum=5.0, maximum=4.0)
    arrived = way(caught.value)
    assert isinstance(arrived, LVQError)
    assert str(arrived).startswith("minimum=5.0 exceeds maximum=4.0.")
    assert arrived.worded(shouted).startswith("<MINIMUM:5.0> exceeds <MAXIMUM:4.0>.")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"minimumMessageTtl": "9000", "max-ttl": "5"}, "minimumMessageTtl='9000' exceeds max-ttl='5'."),
        ({"expiry-delay": "0.1"}, "expiry-delay='0.1' is not a number of milliseconds from 1 to "),
        ({"expiry-address": "dead"}, "expiry-address='dead' of the queue q is for messages that expire"),
        ({"ring-size": 5, "ensureNondestructiveConsumers": "true"}, "ring-size=5 and ensureNondestructiveConsumers="),
        ({"order": "up"}, "'up' is not a valid order for the queue q. Choose one of tail"),
    ],
)
def test_clashes_name_the_options_that_were_given_in_their_units(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        QueueDefinition.from_options("q", {"key-header": "id", **options})
    assert str(caught.value).startswith(said)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_an_unknown_option_names_the_nearest_and_where_the_list_is() -> None:
    for option, meant in (("keylss", "Did you mean keyless? "), ("foo", "")):
        with pytest.raises(ConfigError) as caught:
            QueueDefinition.from_options("q", {"key-header": "id", option: "1"})
        assert str(caught.value) == (f"{option} is not a queue option. {meant}`lvq options` lists all of them.")


def test_a_finding_is_a_sentence_that_says_what_to_type() -> None:
    finding = Finding("ttl", "limited", "unlimited", "warning")
    said = "ttl is unlimited: nothing frees the disk of an expired value until a newer one of its key replaces it. "
    assert str(finding) == f"{said}Give it a maximum: ttl=Ttl(maximum=...)."
    assert finding.worded(shouted) == f"{said}Give it a maximum: <MAX-TTL>."
    setting = Finding("segment.ms", "3600000", "604800000", "warning")
    assert str(setting).endswith('so a quiet topic must roll it. on_mismatch="reconcile" sets it.')
