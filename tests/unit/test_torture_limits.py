"""The judge of the torture test on queues with limits (R12): it finds each breach, and excuses what may be."""

from __future__ import annotations

from math import inf

import pytest

from lvq_kafka.core.queue.limits import Limits
from tests.torture.feed import Call
from tests.torture.journal import Kind
from tests.torture.judge import Verdict
from tests.unit.witnesses import Witness, verdict

TWO = Limits(policy="ring", messages=2)
FOUR = {offset: (f"key-{offset}", f"v{offset}") for offset in (1, 2, 3, 4)}


def ring(*witnesses: Witness, messages: dict[int, tuple[str, str]] | None = None, **options: object) -> Verdict:
    return verdict(*witnesses, messages=messages or FOUR, limits=TWO, **options)  # type: ignore[arg-type]


def take(one: Witness, at: float, *offsets: int, durable: bool = True) -> None:
    """Take these messages, a second after the other, and ack each."""
    for moment, offset in enumerate(offsets):
        number = one.take(at + moment, offset, f"key-{offset}", value=f"v{offset}")
        one.ack(at + moment + 0.1, number, durable=at + moment + 0.2 if durable else None)


def evicting(*offsets: int) -> Witness:
    """Return a witness that got the partition, and evicted these messages one second later."""
    one = Witness("one")
    one.get(0)
    for moment, offset in enumerate(offsets):
        one.evict(1 + moment / 10, offset)
    return one


# ---------------------------------------------------------------- rings


def test_r12_a_message_evicted_by_a_ring_is_done_without_a_hand_out() -> None:
    one = evicting(1, 2)
    take(one, 2, 3, 4)
    found = ring(one)
    assert (found.findings, found.evicted) == ([], 2)


def test_g10_finds_what_a_ring_neither_evicted_nor_handed_out() -> None:
    one = evicting(1)
    take(one, 2, 3, 4)
    assert ring(one).findings == ["G10: 0/2 (key-2=v2) was never delivered"]


def test_g9_finds_a_message_that_is_evicted_while_it_is_in_work() -> None:
    one = Witness("one")
    one.get(0)
    number = one.take(0.5, 1, "key-1")
    one.evict(1, 1)
    one.ack(1.5, number, durable=1.6)
    one.evict(1.7, 2)
    take(one, 2, 3, 4)
    (finding,) = ring(one).findings
    assert finding.startswith("G9: 0/1 was evicted at 1.000 by one, while 0/1 (key-1=v1) at 0.500 by one was in work")


def test_r12_a_returned_message_may_be_evicted() -> None:
    one = Witness("one")
    one.get(0)
    number = one.take(0.5, 1, "key-1")
    one.note(Kind.RELEASING, 0.6, n=[number])
    one.evict(1, 1)
    one.evict(1.1, 2)
    take(one, 2, 3, 4)
    assert ring(one).findings == []


def test_r12_finds_an_evicted_message_that_comes_again_in_the_same_assignment() -> None:
    one = evicting(1, 2)
    take(one, 2, 1, 3, 4)
    assert [finding for finding in ring(one).findings if finding.endswith("in the same assignment")]


@pytest.mark.parametrize("committed", [True, False])
def test_r12_finds_an_evicted_message_that_comes_again_although_that_was_committed(committed: bool) -> None:
    """A later ack that is durable shows that the eviction is, too."""
    one, two = evicting(1, 2), Witness("two")
    one.life.killed = 8
    take(one, 2, 3, durable=committed)
    two.get(10)
    take(two, 11, *((1, 4) if committed else (1, 3, 4)))
    findings = [finding for finding in ring(one, two).findings if finding.startswith("R12: 0/1 ")]
    assert len(findings) == committed
    assert all("committed by 2.200" in finding for finding in findings)


def test_r12_finds_an_evicted_message_that_comes_again_after_an_orderly_hand_over() -> None:
    one, two = evicting(1, 2), Witness("two")
    one.lose(3)
    two.get(4)
    take(two, 5, 2, 3, 4)
    (finding,) = ring(one, two).findings
    assert finding.startswith("R12: 0/2 was evicted at 1.100 by one, committed by 3.000, and ")


@pytest.mark.parametrize(("how", "until"), [("evicted", "1.100"), ("handed out", "1.900")])
def test_r12_finds_a_lower_message_that_waits_while_another_is_evicted(how: str, until: str) -> None:
    one = evicting(2, 1) if how == "evicted" else evicting(2)
    take(one, 2, *((3, 4) if how == "evicted" else (1, 3, 4)))
    findings = [finding for finding in ring(one).findings if "the lower one" in finding]
    assert findings == [f"R12: 0/2 was evicted at 1.000 by one, while the lower one at 1 waited until {until}"]


def test_r12_a_lower_message_in_work_stays() -> None:
    one = Witness("one")
    one.get(0)
    number = one.take(0.5, 1, "key-1")
    one.evict(1, 2)
    one.note(Kind.RELEASING, 1.5, n=[number])
    take(one, 3, 1, 3, 4)
    assert ring(one).findings == []


def test_r12_finds_a_message_that_is_evicted_although_there_was_room() -> None:
    one = evicting(1, 2, 3)
    take(one, 2, 4)
    (finding,) = ring(one).findings
    assert finding == (
        "R12: 0/3 was evicted at 1.200 by one, and there were 1 others at most, where the partition may hold 2"
    )


@pytest.mark.parametrize(("at", "too_early"), [(1.05, False), (1.15, True)])
def test_r12_a_message_sent_later_makes_no_ring_too_full(at: float, too_early: bool) -> None:
    one = evicting(1, 2)
    take(one, 2, 3, 4)
    findings = ring(one, sent_at={4: at}).findings
    assert [finding[:32] for finding in findings] == (["R12: 0/2 was evicted at 1.100 by"] if too_early else [])


def test_r12_a_message_set_aside_is_in_work_before_it_is_handed_out() -> None:
    one = evicting(3)
    one.life.counts = True
    take(one, 2, 1, 2, 4)
    assert ring(one).findings == []
    one.life.counts = False
    assert ring(one).findings != []


def test_r12_finds_a_ring_that_keeps_too_many() -> None:
    """The message at 4 shows that all others had been read."""
    one = Witness("one")
    one.get(0)
    take(one, 1, 4, 1, 2, 3)
    findings = [finding for finding in ring(one).findings if finding.startswith("R12")]
    assert findings == [
        "R12: 3 messages waited in partition 0 at 1.000, and one kept them, where 2 may be",
    ]


# ---------------------------------------------------------------- producers that wait


BLOCK = Limits(policy="block", messages=2, resume=1.0)


def call(offset: int, begin: float, end: float | None = None, *, producer: int = 0, delete: str = "") -> Call:
    value = None if delete else f"v{offset}"
    return Call(producer, delete or f"key-{offset}", value, begin, begin if end is None else end, (0, offset))


def block(*calls: Call, witness: Witness | None = None, **options: object) -> Verdict:
    one = Witness("one") if witness is None else witness
    if witness is None:
        take(one, 100, *(call.place[1] for call in calls if call.place is not None and call.value is not None))
    sent = {call.place[1]: (call.key, call.value) for call in calls if call.place is not None}
    return verdict(one, messages=sent, limits=BLOCK, calls=calls, **options)  # type: ignore[arg-type]


def test_r12_finds_a_key_that_is_added_to_a_full_queue() -> None:
    found = block(call(1, 10), call(2, 11), call(3, 12))
    assert found.findings == [
        "R12: producer 0 added key-3=v3 at 12.000 to a queue with 2 messages, where 2 may be",
    ]
    assert found.nearly_full == 2


def test_r12_an_update_needs_no_room() -> None:
    update = Call(0, "key-1", "v9", 12, 12, (0, 9))
    one = Witness("one")
    take(one, 100, 2)
    one.ack(111, one.take(110, 9, "key-1", value="v9"), durable=112)
    assert block(call(1, 10), call(2, 11), update, witness=one).findings == []


def test_r12_an_acked_or_deleted_message_may_have_made_room() -> None:
    one = Witness("one")
    take(one, 11.5, 1)
    take(one, 100, 2, 3)
    assert block(call(1, 10), call(2, 11), call(3, 12), witness=one).findings == []
    deleting = block(call(1, 10), call(2, 11), call(4, 11.5, delete="key-1"), call(3, 12), witness=one)
    assert deleting.findings == []


@pytest.mark.parametrize(("at", "known"), [(13.0, False), (20.0, True)])
def test_r12_producers_exceed_the_limit_by_what_others_have_under_way(at: float, known: bool) -> None:
    calls = [call(1, 10, producer=1), call(2, 11, producer=1), call(3, at)]
    findings = block(*calls).findings
    assert [finding[:21] for finding in findings] == (["R12: producer 0 added"] if known else [])
    assert block(*calls, outages=[(12, 19)]).findings == [], "in an outage nobody hears of others"


@pytest.mark.parametrize(("end", "waited"), [(35.0, False), (70.0, True)])
def test_r12_finds_a_producer_that_waits_while_there_is_room(end: float, waited: bool) -> None:
    """All others are done at 22."""
    one = Witness("one")
    take(one, 20, 1, 2)
    take(one, 100, 3)
    found = block(call(1, 10), call(2, 11), call(3, 12, end), witness=one)
    assert [finding[:57] for finding in found.findings] == (
        ["R12: producer 0 waited with key-3=v3 until 70.000, and fr"] if waited else []
    )
    assert found.blocked == 1


def test_r12_a_producer_may_wait_as_long_as_the_queue_is_full_or_the_broker_away() -> None:
    one = Witness("one")
    take(one, 80, 1, 2)
    take(one, 100, 3)
    assert block(call(1, 10), call(2, 11), call(3, 12, 82), witness=one).findings == []
    away = Witness("one")
    take(away, 20, 1, 2)
    take(away, 100, 3)
    assert block(call(1, 10), call(2, 11), call(3, 12, 70), witness=away, outages=[(30, 60)]).findings == []


def test_r12_finds_a_call_that_never_ends_although_there_is_room() -> None:
    one = Witness("one")
    take(one, 20, 1, 2)
    forever = Call(0, "key-3", "v3", 12, inf)
    (finding,) = block(call(1, 10), call(2, 11), forever, witness=one).findings
    assert finding.startswith("R12: producer 0 waited with key-3=v3 until inf")


def test_g10_finds_what_a_queue_that_blocks_has_stored_and_nobody_got() -> None:
    one = Witness("one")
    take(one, 20, 1)
    assert block(call(1, 10), call(2, 11), witness=one).findings == ["G10: 0/2 (key-2=v2) was never delivered"]
