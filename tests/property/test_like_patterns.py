"""Patterns of LIKE against an evaluator that tries every way, and what they cost in long texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.selectors import like_patterns
from lvq_kafka.selectors.like_patterns import LikePattern, _Wild

PATTERNS = st.text(alphabet="ab%_é", max_size=9)
TEXTS = st.text(alphabet="abé\n", max_size=14)


def resembles(text: str, pattern: str) -> bool:
    """Return whether a text has a pattern, by all its beginnings."""
    ends = {0}  # of the beginnings of the text that have the pattern so far
    for unit in pattern:
        if unit == "%":
            ends = set(range(min(ends), len(text) + 1)) if ends else ends
        else:
            ends = {end + 1 for end in ends if end < len(text) and unit in ("_", text[end])}
    return len(text) in ends


@pytest.mark.parametrize("little", [like_patterns._LITTLE, 0], ids=["short texts", "long texts"])
@given(text=TEXTS, pattern=PATTERNS)
def test_a_pattern_matches_what_it_says(little: int, text: str, pattern: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(like_patterns, "_LITTLE", little)
        assert LikePattern(pattern).matches(text) is resembles(text, pattern)


class Counted(dict[str, int]):
    """The masks of a part, which count how often a character of the text was looked at."""

    looks = 0

    def get(self, key: str, default: int | None = None) -> int | None:  # type: ignore[override]
        self.looks += 1
        return super().get(key, default)


@pytest.mark.parametrize("part", ["_" * 1000 + "b", "a" * 500 + "_" + "b" * 500, "a_" * 500 + "b", "a_b"])
def test_no_character_of_a_long_text_is_looked_at_twice(part: str) -> None:
    """A regular expression would compare the part at each place."""
    text = "a" * like_patterns.LONGEST_TEXT
    pattern = LikePattern(f"%{part}%{part}%")
    masks = []
    for wild in pattern._middle:
        assert isinstance(wild, _Wild)
        wild._masks = Counted(wild._masks)
        masks.append(wild._masks)
    assert not pattern.matches(text)
    assert 0 < sum(each.looks for each in masks) <= len(text)  # type: ignore[attr-defined]


@pytest.mark.parametrize("pattern", ["%" + "a" * 1000 + "b", "%" + "a" * 1000 + "b%", "%".join(["aaab"] * 200), "a%"])
def test_a_pattern_without_underscores_needs_no_regular_expression(pattern: str) -> None:
    found = LikePattern(pattern)
    parts = [found._first, *found._middle, found._last]
    assert not any(isinstance(part, _Wild) for part in parts)
