"""Negotiation of the media type of an answer, by ``Accept`` (RFC 9110, section 12.5.1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from lvq_kafka.serve.problems import HttpRefusal

__all__ = ["chosen_type"]

_RANGE = re.compile(r"([\w!#$&^.+*-]+)/([\w!#$&^.+*-]+)")
_QUALITY = re.compile(r"0(?:\.\d{0,3})?|1(?:\.0{0,3})?")


class _Match(NamedTuple):
    """The fit of a type; a greater one is better."""

    quality: float
    exact: int
    """2 if the client names the type, 1 if it names its half, 0 if it takes anything."""


def chosen_type(accept: str | None, offers: Sequence[str]) -> str:
    """Return the type that a client wants most.

    Of several, it is one that it names, or else the first.

    Args:
        accept: the header; None for none. A part that cannot be read counts as absent.
        offers: the types that there are, in small letters, without parameters.

    Raises:
        HttpRefusal: none of them suits it.
    """
    if accept is None or not accept.strip():
        return offers[0]
    ranges = _ranges(accept)
    best = max(offers, key=lambda offer: _match(offer, ranges))  # the first of equals
    if _match(best, ranges).quality == 0:
        raise HttpRefusal(406, f"There is no such form of this. Accept one of {', '.join(offers)}.")
    return best


def _ranges(accept: str) -> list[tuple[str, str, float]]:
    found = []
    for part in accept.lower().split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        match = _RANGE.fullmatch(name)
        if match is not None:
            given = [text.removeprefix("q=") for text in parameters if text.startswith("q=")]
            quality = float(given[0]) if given and _QUALITY.fullmatch(given[0]) else 1.0
            found.append((match[1], match[2], quality))
    return found


def _match(offer: str, ranges: Sequence[tuple[str, str, float]]) -> _Match:
    """Return how well a type fits: by the most specific range that has it."""
    kind, _, rest = offer.partition("/")
    exact, quality = -1, 0.0
    for first, second, given in ranges:
        named = 2 if (first, second) == (kind, rest) else 1 if (first, second) == (kind, "*") else 0
        if (named or (first, second) == ("*", "*")) and named > exact:
            exact, quality = named, given
    return _Match(quality, max(exact, 0))
