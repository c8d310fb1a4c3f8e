"""The judge of the torture test on the order of hand-outs: it finds what is out of turn, and excuses what may be."""

from __future__ import annotations

from math import inf

import pytest

from tests.torture.dead_letters import DeadLetter
from tests.torture.journal import Kind
from tests.torture.judge import Output, Verdict
from tests.torture.lifetimes import Times
from tests.unit.witnesses import Witness, verdict

MESSAGES = {1: ("key-0001", "v1"), 2: ("key-0041", "v2"), 3: ("key-0081", "v3"), 4: ("key-0002", "v4")}
"""The first three belong to one group."""

RANKS = {1: 5, 2: 0, 3: 9, 4: 0}


def taking(*offsets: int, witness: Witness | None = None, **facts: object) -> Witness:
    """Return a witness that got the partition, and then these messages, a second after the other."""
    one = Witness("one") if witness is None else witness
    one.get(0)
    for at, offset in enumerate(offsets, 1):
        key, value = MESSAGES[offset]
        one.ack(at + 0.1, one.take(at, offset, key, value=str(value), **facts), durable=at + 0.2)  # type: ignore[arg-type]
    return one


def judged(*witnesses: Witness, ranks: dict[int, int] | None = None, **options: object) -> Verdict:
    taken = {e.facts["offset"] for w in witnesses for e in w.life.events if e.kind is Kind.ACQUIRED}
    messages = {offset: message for offset, message in MESSAGES.items() if offset in taken}
    return verdict(*witnesses, messages=messages, ranks=ranks, **options)  # type: ignore[arg-type]


def test_r20_finds_a_message_that_is_handed_out_while_a_better_one_waits() -> None:
    """The message at 3 shows that the process had read those at 1 and 2."""
    found = judged(taking(3, 1, 2), ranks=RANKS)
    assert len(found.findings) == 1
    assert found.findings[0].startswith("R20: 0/1 (key-0001=v1)")
    assert found.findings[0].endswith("(key-0041=v2) at 3.000 by one, of rank 0 and not 5 waited")


def test_r20_the_better_one_first_is_all_right() -> None:
    found = judged(taking(3, 2, 1), ranks=RANKS)
    assert (found.findings, found.waited) == ([], 1)


def test_r20_finds_a_later_one_of_the_same_rank_that_comes_first() -> None:
    (finding,) = judged(taking(4, 3, 2, 1), ranks={1: 3, 2: 3, 3: 1, 4: 9}).findings
    assert finding.startswith("R20: 0/2 ")


def test_r4_finds_what_is_not_in_the_order_of_arrival() -> None:
    (finding,) = judged(taking(3, 2, 1)).findings
    assert finding.startswith("R4: 0/2 (key-0041=v2) at 2.000 by one was handed out while 0/1 (key-0001=v1) at 3.000")
    found = judged(taking(3, 1, 2))
    assert (found.findings, found.waited) == ([], 1)


def test_r36_finds_what_is_not_in_the_order_of_its_group() -> None:
    (finding,) = judged(taking(3, 2, 1), grouped=True).findings
    assert finding.startswith("R36: 0/2 ")
    (finding,) = judged(taking(3, 1, 2), ranks=RANKS, grouped=True).findings
    assert finding.startswith("R36: 0/1 ")


def test_r36_groups_and_sessions_have_an_order_each() -> None:
    one = taking(4)
    for at, offset, session in ((2, 3, 1), (3, 2, 2), (4, 1, 3)):
        key, value = MESSAGES[offset]
        one.ack(at + 0.1, one.take(at, offset, key, value=value, session=session), durable=at + 0.2)
    assert judged(one, grouped=True).findings == []


def test_a_message_that_nobody_is_known_to_have_read_may_have_come_later() -> None:
    found = judged(taking(1, 2), ranks=RANKS)
    assert (found.findings, found.waited) == ([], 0)


@pytest.mark.parametrize("facts", [{"ahead": True}, {"counts": True}])
def test_messages_set_aside_keep_the_order_that_they_had_then(facts: dict[str, bool]) -> None:
    one = Witness("one")
    one.life.counts = facts.pop("counts", False)
    assert judged(taking(3, 1, 2, witness=one, **facts), ranks=RANKS).findings == []


def test_a_message_that_failed_elsewhere_may_let_others_go_in_between() -> None:
    one = taking(3, 1)
    one.ack(3.1, one.take(3, 2, "key-0041", redelivered=True), durable=3.2)
    assert judged(one, ranks=RANKS).findings == []


def test_a_message_that_came_back_may_have_waited_for_its_delay() -> None:
    one = taking(3)
    number = one.take(2, 2, "key-0041")
    one.note(Kind.RELEASING, 2.1, n=[number])
    one.ack(3.1, one.take(3, 1, "key-0001"), durable=3.2)
    one.ack(4.1, one.take(4, 2, "key-0041", redelivered=True), durable=4.2)
    assert judged(one, ranks=RANKS).findings == []


@pytest.mark.parametrize(("later", "out_of_turn"), [(6.0, False), (8.5, True)])
def test_a_lock_that_times_out_lasts_from_when_its_message_was_handed_out(later: float, out_of_turn: bool) -> None:
    one = Witness("one")
    one.get(0)
    one.take(3, 1, "key-0041", value="v1", waited=3.0)
    one.ack(3.3, one.take(3.2, 3, "key-0081", value="v3"), durable=3.4)
    one.ack(later + 0.1, one.take(later, 4, "key-0002", value="v4"), durable=later + 0.2)
    one.ack(9.1, one.take(9, 2, "key-0041", value="v2"), durable=9.2)
    messages = {1: ("key-0041", "v1"), **{offset: MESSAGES[offset] for offset in (2, 3, 4)}}
    found = verdict(one, messages=messages, lock_timeout=4.0).findings
    assert [finding[:7] for finding in found] == (["R4: 0/4"] if out_of_turn else [])


@pytest.mark.parametrize(("acked", "out_of_turn"), [(2.5, False), (0.9, True)])
def test_a_message_waits_while_an_older_one_of_its_key_is_held(acked: float, out_of_turn: bool) -> None:
    one = Witness("one")
    one.get(0)
    older = one.take(0.5, 1, "key-0041", value="v1")
    if acked < 1:
        one.ack(acked, older, durable=acked)
    one.ack(1.1, one.take(1, 3, "key-0081"), durable=1.2)
    one.ack(3.1, one.take(3, 4, "key-0002"), durable=3.2)
    if acked > 1:
        one.ack(acked, older, durable=acked)
    one.ack(4.1, one.take(4, 2, "key-0041"), durable=4.2)
    messages = {1: ("key-0041", "v1"), **{offset: MESSAGES[offset] for offset in (2, 3, 4)}}
    found = verdict(one, messages=messages, ranks={1: 0, 2: 0, 3: 9, 4: 5}).findings
    assert [finding[:8] for finding in found] == (["R20: 0/4"] if out_of_turn else [])


def test_another_assignment_may_not_have_read_it() -> None:
    one = taking(3)
    one.lose(1.5)
    one.get(1.6)
    for at, offset in ((2, 1), (3, 2)):
        key, value = MESSAGES[offset]
        one.ack(at + 0.1, one.take(at, offset, key, value=value), durable=at + 0.2)
    assert judged(one, ranks=RANKS).findings == []


def test_a_key_with_a_dead_letter_may_have_been_on_its_way() -> None:
    letter = DeadLetter((0, 0), "key-0041", "v0", 3, "delivered 3 times and never acknowledged", 1.5)
    findings = judged(taking(3, 1, 2), ranks=RANKS, letters=[letter]).findings
    assert not [finding for finding in findings if finding.startswith("R20")]


def test_the_order_is_exact_within_the_window_only() -> None:
    far = 17_571
    one = Witness("one")
    one.get(0)
    for at, offset in enumerate((far + 2, 1, far), 1):
        one.ack(at + 0.1, one.take(at, offset, f"key-{offset}"), durable=at + 0.2)
    messages = {offset: (f"key-{offset}", f"v{offset}") for offset in (1, far, far + 2)}
    assert verdict(one, messages=messages, ranks={1: 5, far: 0, far + 2: 9}).findings == []


def test_transactions_and_messages_that_are_not_due_keep_an_order_of_their_own() -> None:
    output = [Output("one", number, (0, offset), *MESSAGES[offset]) for number, offset in enumerate((3, 1, 2), 1)]  # type: ignore[arg-type]
    found = judged(taking(3, 1, 2), ranks=RANKS, output=output)
    assert not [finding for finding in found.findings if finding.startswith("R20")]
    timed = judged(taking(3, 1, 2), ranks=RANKS, times=Times({}, [], 0.0))
    assert not [finding for finding in timed.findings if finding.startswith("R20")]
    assert inf > found.waited == timed.waited == 0


def test_r35_in_a_standard_queue_messages_of_a_key_stand_alone() -> None:
    one = Witness("one")
    newer, older = one.take(1, 2, "k"), one.take(2, 1, "k")
    one.ack(3, newer, durable=4)
    one.ack(3, older, durable=4)
    messages: dict[int, tuple[str, str | None]] = {1: ("k", "v1"), 2: ("k", "v2")}
    assert verdict(one, messages=messages, standard=True).findings == []
    assert {finding[:4] for finding in verdict(one, messages=messages).findings} == {"G12:", "G13:"}


def test_r35_finds_a_message_of_a_standard_queue_that_was_never_delivered() -> None:
    one = Witness("one")
    one.ack(2, one.take(1, 2, "k"), durable=3)
    messages: dict[int, tuple[str, str | None]] = {1: ("k", "v1"), 2: ("k", "v2")}
    (finding,) = verdict(one, messages=messages, standard=True).findings
    assert finding == "G10: 0/1 (k=v1) was never delivered"
    assert verdict(one, messages=messages).findings == [], "elsewhere, the newer one has replaced it"


@pytest.mark.parametrize(("key", "standard"), [("torture/0/1", True), ("k", False)])
def test_r35_a_dead_letter_of_a_standard_queue_has_the_position_as_its_key(key: str, standard: bool) -> None:
    one = Witness("one")
    letter = DeadLetter((0, 1), key, "v1", 1, one.reject(2, one.take(1, 1), durable=3), 2.5)
    assert verdict(one, letters=[letter], standard=standard).findings == []
    (finding,) = verdict(one, letters=[letter], standard=not standard).findings
    assert "is not what was sent: k=v1" in finding


@pytest.mark.parametrize(("key", "findings"), [("lvq-unkeyed:ab:1", 0), ("k", 1)])
def test_r1_a_dead_letter_of_a_message_without_a_key_has_a_unique_one(key: str, findings: int) -> None:
    one = Witness("one")
    taken = one.take(1, 1, "lvq-unkeyed:ab:1")
    letter = DeadLetter((0, 1), key, "v1", 1, one.reject(2, taken, durable=3), 2.5)
    found = verdict(one, messages={1: (None, "v1")}, letters=[letter]).findings
    assert [finding for finding in found if "is not what was sent" in finding] == found
    assert len(found) == findings


def test_g9_finds_two_holders_of_a_message_of_a_standard_queue() -> None:
    one, two = Witness("one"), Witness("two")
    one.take(1, 1)
    two.ack(3, two.take(2, 1), durable=4)
    assert any(finding.startswith("G9") for finding in verdict(one, two, standard=True).findings)
