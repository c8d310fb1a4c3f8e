"""Offset commits as other clients send them: without our final NUL, and with a retention time."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping

from lvq_kafka.cluster import Commit

__all__ = ["commit_as_others_do"]

_OFFSET_COMMIT, _VERSION, _CORRELATION = 8, 2, 1  # the version with a retention time for commits
_NO_GENERATION = -1  # a commit from outside, which a group without members accepts


def commit_as_others_do(
    address: str, group: str, topic: str, commits: Mapping[int, Commit], *, kept: float | None = None
) -> None:
    """Commit for a group without members, on a cluster of one broker.

    Args:
        kept: seconds after which the broker may forget these commits; by default as long as those of other groups.
    """
    time_to_live = -1 if kept is None else round(kept * 1000)
    partitions = b"".join(struct.pack(">iq", p, one.offset) + _text(one.metadata) for p, one in commits.items())
    request = (
        struct.pack(">hhi", _OFFSET_COMMIT, _VERSION, _CORRELATION)
        + _text("another client")
        + _text(group)
        + struct.pack(">i", _NO_GENERATION)
        + _text("")  # member id
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
