"""Patterns for the names of topics, their precedence, and the form in which settings are stored."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.core.queue.settings_by_pattern import AddressPattern, AddressSetting, matching
from lvq_kafka.errors import ConfigError

WORDS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=5)
PATTERNS = st.lists(st.sampled_from(["a", "b", "c", "*", "#"]), min_size=1, max_size=5)


class TestMatching:
    @pytest.mark.parametrize(
        ("pattern", "matched", "others"),
        [  # the first two are examples of Artemis's manual
            ("news.europe.#", ["news.europe", "news.europe.sport", "news.europe.politics.regional"], ["news.usa"]),
            ("news.*.sport", ["news.europe.sport", "news.usa.sport"], ["news.europe.politics", "news.sport"]),
            ("#", ["a", "a.b", "a_b"], []),
            ("#.b", ["b", "a.b", "a.a.b"], ["a", "b.a"]),
            ("a.#.b", ["a.b", "a.c.c.b"], ["a", "b"]),
            ("lastValueQueue", ["lastValueQueue"], ["lastValueQueues", "lastValueQueue.a"]),
        ],
    )
    def test_wildcards_stand_for_whole_words(self, pattern: str, matched: list[str], others: list[str]) -> None:
        for topic in (*matched, *others):
            assert AddressPattern(pattern).matches(topic) is (topic in matched), topic

    def test_a_delimiter_parts_the_words_of_pattern_and_name(self) -> None:
        assert AddressPattern("stock_*", "_").matches("stock_ibm.us")
        assert not AddressPattern("stock.*", ".").matches("stock_ibm")

    @given(PATTERNS, WORDS)
    def test_a_pattern_matches_what_a_regular_expression_of_it_does(self, pattern: list[str], words: list[str]) -> None:
        expression = "".join({"#": "(?:[^/]+/)*", "*": "[^/]+/"}.get(word, f"{word}/") for word in pattern)
        expected = re.fullmatch(expression, "".join(f"{word}/" for word in words)) is not None
        assert AddressPattern(".".join(pattern)).matches(".".join(words)) is expected

    @pytest.mark.parametrize("pattern", ["", "a#", "*a", "a b", "ü", "a.#b", "a" * 250, "stock/us"])
    def test_a_pattern_that_matches_no_name_is_refused(self, pattern: str) -> None:
        with pytest.raises(ConfigError) as refused:
            AddressPattern(pattern)
        assert "pattern" in refused.value.options

    @pytest.mark.parametrize("delimiter", ["/", "", "..", "a", "#"])
    def test_a_delimiter_that_no_name_has_is_refused(self, delimiter: str) -> None:
        with pytest.raises(ConfigError, match="cannot part the words"):
            AddressPattern("a", delimiter)


class TestPrecedence:
    def test_the_most_specific_setting_is_first_as_in_artemis(self) -> None:
        order = ["a.b.c", "a.b.*", "a.*.c", "*.b.c", "a.b.#", "a.#", "#"]
        settings = [AddressSetting(AddressPattern(pattern)) for pattern in sorted(order)]
        assert [setting.pattern.text for setting in matching(settings, "a.b.c")] == order

    @given(st.permutations(["#", "a.#", "*.b", "a.*", "a.b", "#.b", "*.#"]))
    def test_precedence_does_not_depend_on_the_order_in_which_settings_are_stored(self, order: list[str]) -> None:
        settings = [AddressSetting(AddressPattern(pattern)) for pattern in order]
        first = [setting.pattern.text for setting in matching(settings, "a.b")]
        assert first[:3] == ["a.b", "a.*", "*.b"]
        assert first[-1] == "#"


class TestStoredForm:
    @given(
        PATTERNS,
        st.sampled_from([".", "-", "_"]),
        st.fixed_dictionaries(
            {"max-ttl": st.floats(0.001, 1e6)},
            optional={"key-header": st.sampled_from(["a", "ü"]), "dynamic-durables": st.booleans()},
        ),
    )
    def test_a_setting_is_read_as_it_was_written(
        self, words: list[str], delimiter: str, options: dict[str, object]
    ) -> None:
        setting = AddressSetting(AddressPattern(delimiter.join(words), delimiter), options)
        assert AddressSetting.from_json(setting.to_json(), pattern=setting.pattern.text) == setting

    @pytest.mark.parametrize(
        ("document", "said"),
        [
            (b"\xff", "not readable"),
            (b"[]", "not readable"),
            (b"{}", "has version None"),
            (b'{"version": 2, "options": {}}', "has version 2"),
            (b'{"version": 1, "options": {}, "more": 1}', "unknown fields more"),
            (b'{"version": 1, "options": []}', "malformed"),
            (b'{"version": 1, "options": {}, "delimiter": "/"}', "malformed"),
            (b'{"version": 1, "options": {}, "delimiter": []}', "malformed"),
        ],
    )
    def test_an_unreadable_setting_is_named(self, document: bytes, said: str) -> None:
        with pytest.raises(ConfigError, match=said) as refused:
            AddressSetting.from_json(document, pattern="stock.#")
        assert "stock.#" in str(refused.value)

    @given(st.binary(max_size=200), st.text(max_size=30))
    def test_any_record_is_a_setting_or_refused(self, document: bytes, pattern: str) -> None:
        with suppress(ConfigError):
            AddressSetting.from_json(document, pattern=pattern)


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({}, "has no option"),
            ({"expiry-dely": 5}, "not a queue option"),
            ({"default-ttl": "soon"}, "not a number"),
            ({"dynamic-durables": "perhaps"}, "neither true nor false"),
            ({"key-header": b"ticker"}, "Give text"),
            ({"max-ttl": float("nan")}, "not a number"),
        ],
    )
    def test_options_are_checked_when_they_are_set(self, options: dict[str, object], said: str) -> None:
        with pytest.raises(ConfigError, match=said):
            AddressSetting.of(AddressPattern("a"), options)

    def test_a_switch_for_durables_is_read_by_its_value(self) -> None:
        assert AddressSetting.of(AddressPattern("a"), {"dynamic-durables": "yes"}).options == {"dynamic-durables": True}
