"""A standard queue's ledger against a model that is but a log and a set of offsets (R35).

Every message is handed out at least once, and one that was durably acked never again, whatever keys the messages have,
in whatever order they are settled, and however often the consumer dies.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.ledger.ledger import Item
from lvq_kafka.core.log.records import RecordBatch
from tests.rules import new_ledger

Record = tuple[bytes | None, bytes | None]
RECORDS = st.lists(
    st.tuples(st.sampled_from([b"a", b"a", b"b", b"", None]), st.sampled_from([b"v", b"v", b"", None])), max_size=8
)
DECISIONS = st.lists(st.sampled_from(["ack", "release", "keep"]), max_size=20)
LIVES = st.lists(st.tuples(RECORDS, st.integers(1, 4), DECISIONS, st.booleans()), min_size=1, max_size=6)


class Life:
    """A consumer from its start to its end."""

    def __init__(self, committed: tuple[int, str], end: int) -> None:
        self.ledger = new_ledger(conflate=False)
        loaded = CommitMap.decode(*committed)
        self.position = loaded.base
        self.ledger.assign(0, loaded, end)

    def read(self, log: list[Record], size: int) -> None:
        while self.position < len(log):
            offsets = list(range(self.position, min(self.position + size, len(log))))
            keys, values = [log[at][0] for at in offsets], [log[at][1] for at in offsets]
            count = len(offsets)
            batch = RecordBatch([0] * count, offsets, [0] * count, keys, list(values), [None] * count)
            self.ledger.add(batch, keys)
            self.position += count

    def take_all(self) -> list[Item]:
        taken = []
        while (item := self.ledger.acquire()) is not None:
            taken.append(item)
        return taken

    @property
    def commit(self) -> tuple[int, str]:
        claim = self.ledger.assignment.claim(0)
        return claim.base, claim.encode()


@given(LIVES)
def test_each_message_comes_until_it_is_durably_acked(lives: list[tuple[list[Record], int, list[str], bool]]) -> None:
    log: list[Record] = []
    committed, durable = (0, CommitMap(0).encode()), set[int]()
    for records, size, decisions, dies in lives:
        life = Life(committed, len(log))
        log += records
        life.read(log, size)
        taken = life.take_all()
        waiting = [at for at, (_, value) in enumerate(log) if value is not None and at not in durable]
        assert [item.offset for item in taken] == waiting
        assert [(item.key, item.value) for item in taken] == [log[at] for at in waiting]
        acked = set()
        for item, decision in zip(taken, decisions):
            if decision == "ack":
                life.ledger.ack(item)
                acked.add(item.offset)
            elif decision == "release":
                life.ledger.release(item)
        again = life.take_all()
        assert [(item.offset, item.key) for item in again] == [
            (item.offset, log[item.offset][0]) for item, decision in zip(taken, decisions) if decision == "release"
        ]
        if not dies:
            committed, durable = life.commit, durable | acked


@given(RECORDS.filter(bool), st.integers(1, 4))
def test_nothing_waits_for_the_end_of_the_log(log: list[Record], size: int) -> None:
    life = Life((0, CommitMap(0).encode()), len(log) + 100)
    life.read(log, size)
    assert [item.offset for item in life.take_all()] == [at for at, (_, value) in enumerate(log) if value is not None]
