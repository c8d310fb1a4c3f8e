"""Entity tags: one value of one topic in one representation (RFC 9110, section 8.8.3)."""

from __future__ import annotations

import re
from urllib.parse import quote

from lvq_kafka.core.facts import Position

__all__ = ["entity_tag", "is_known"]

_TAG = re.compile(r'\s*(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")\s*(?:,|$)')
_EMPTY = re.compile(r"\s*,")


def entity_tag(topic_id: str, position: Position, representation: str) -> str:
    """Return the strong entity tag of a value.

    A value is what lies at one position of one topic, and never changes. A topic that was re-created has another id.

    Args:
        topic_id: the id of the topic.
        position: the value's.
        representation: words for the form in which it is sent: all that its bytes and its type depend on.
    """
    return f'"{quote(topic_id, safe="")}.{position.partition}.{position.offset}.{representation}"'


def is_known(tag: str, if_none_match: str | None) -> bool:
    """Return whether an ``If-None-Match`` names an entity tag, by weak comparison.

    A header that is not a list of entity tags names none: the client then gets the value.
    """
    if if_none_match is None:
        return False
    if if_none_match.strip() == "*":
        return True
    at, found = 0, False
    while at < len(if_none_match):
        if (empty := _EMPTY.match(if_none_match, at)) is not None:
            at = empty.end()
        elif (match := _TAG.match(if_none_match, at)) is not None:
            found = found or match[1] == tag
            at = match.end()
        elif if_none_match[at:].strip():
            return False
        else:
            break
    return found
