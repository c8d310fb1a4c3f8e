"""Offset commits as other clients send them: without the NUL that ours appends, and with a time to live."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping

from lvq_kafka.cluster import Commit

__all__ = ["commit_as_others_do"]

_OFFSET_COMMIT, _VERSION, _CORRELATION = 8, 2, 1  # the version in which a commit can have a time to live
_NO_GENERATION = -1  # a commit from outside, which a group without members takes


def commit_as_others_do(
    address: str, group: str, topic: str, commits: Mapping[int, Commit], *, kept: float | None = None
) -> None:
    """Commit for a group without members, on a cluster of one broker.

    Args:
        kept: seconds after which the broker forgets these commits, once the group has no members; without it, as long
            as the broker keeps those of any group.
    """
    time_to_live = -1 if kept is None else round(kept * 1000)
    partitions = b"".join(struct.pack(">iq", p, one.offset) + _text(one.metadata) for p, one in commits.items())
    request = (
        struct.pack(">hhi", _OFFSET_COMMIT, _VERSION, _CORRELATION)
        + _text("another client")
        + _text(group)
        + struct.pack(">i", _NO_GENERATION)
        + _text("")  # the member
        + struct.pack(">qi", time_to_live, 1)  # one topic
        + _text(topic)
        + struct.pack(">i", len(commits))
        + partitions
    )
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 30) as connection, connection.makefile("rwb") as stream:
        stream.write(struct.pack(">i", len(request)) + request)
        stream.flush()
        answer = stream.read(*struct.unpack(">i", stream.read(4)))
    errors = struct.iter_unpack(">ih", answer[-6 * len(commits) :])  # partition and error code, at the end
    assert dict(errors) == dict.fromkeys(commits, 0)


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()
