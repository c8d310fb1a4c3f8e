"""The judge of the torture test: it finds every kind of fault, and none in what the contract allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from tests.torture.dead_letters import DeadLetter
from tests.torture.journal import Kind
from tests.torture.judge import Output, Verdict
from tests.unit.witnesses import MOST, Witness, verdict


def letter(reason: str, at: float, *, offset: int = 1, count: int = 1, value: str = "") -> DeadLetter:
    return DeadLetter((0, offset), "k", value or f"v{offset}", count, reason, at)


def given_up(at: float, count: int, *, offset: int = 1) -> DeadLetter:
    return letter(f"delivered {count} times and never acknowledged", at, offset=offset, count=count)


def test_a_message_that_is_delivered_and_acked_is_all_right() -> None:
    one = Witness("one")
    one.ack(2, one.take(1, 1), durable=3)
    found = verdict(one)
    assert (found.findings, found.delivered, found.durable) == ([], 1, 1)


def test_g10_finds_what_was_never_delivered_and_what_was_never_acked() -> None:
    one = Witness("one")
    one.take(1, 1)
    found = verdict(one, messages={1: ("k", "v1"), 2: ("l", "v2")})
    assert [finding[:9] for finding in found.findings] == ["G10: 0/1 ", "G10: 0/2 "]


def test_superseded_and_deleted_messages_need_not_be_delivered() -> None:
    one = Witness("one")
    one.ack(2, one.take(1, 2), durable=3)
    messages = {1: ("k", "v1"), 2: ("k", "v2"), 3: ("l", "v3"), 4: ("l", None)}
    assert verdict(one, messages=messages).findings == []


def test_a_delivered_value_must_be_the_one_that_was_sent() -> None:
    one = Witness("one")
    one.ack(2, one.take(1, 1, value="something else"), durable=3)
    assert "is not what was sent" in verdict(one).findings[0]


def test_a_delete_must_not_be_delivered() -> None:
    one = Witness("one")
    one.ack(2, one.take(1, 1), durable=3)
    assert "is not what was sent" in verdict(one, messages={1: ("k", None)}).findings[0]


def test_g14_a_message_that_may_have_been_stored_may_be_delivered_or_not() -> None:
    one = Witness("one")
    one.ack(2, one.take(1, 1), durable=3)
    one.ack(5, one.take(4, 2), durable=6)
    assert verdict(one, unsure={2: ("k", "v2")}).findings == []
    assert verdict(one, unsure={2: ("k", "v2"), 3: ("l", None)}).findings == []


def test_g14_finds_what_was_said_not_to_be_stored_and_is_there() -> None:
    one = Witness("one")
    one.ack(2, one.take(1, 1), durable=3)
    one.ack(5, one.take(4, 2), durable=6)
    found = verdict(one, refused={2: ("k", "v2")}).findings
    assert "is not what was sent" in found[0]
    assert found[1:] == ["G14: ('k', 'v2') at 0/2 was said not to be stored"]


def test_g14_finds_an_older_value_behind_a_newer_one() -> None:
    one = Witness("one")
    one.ack(2, one.take(1, 3, value="v9"), durable=3)
    found = verdict(one, messages={1: ("k", "v9"), 2: ("k", "v10"), 3: ("k", "v9")}).findings
    assert found == ["G14: k=v9 at 0/3 lies after k=v10"]


def test_g14_copies_of_values_that_were_sent_again_are_all_right_in_their_order() -> None:
    one = Witness("one")
    one.ack(2, one.take(1, 4, value="v10"), durable=3)
    stored = {1: ("k", "v9"), 2: ("k", "v10"), 3: ("k", "v9"), 4: ("k", "v10")}
    assert verdict(one, messages=stored).findings == []


def test_g11_finds_a_durably_acked_message_that_comes_again() -> None:
    one, two = Witness("one", killed=4), Witness("two")
    one.ack(2, one.take(1, 1), durable=3)
    two.ack(6, two.take(5, 1), durable=7)
    assert verdict(one, two).findings[0].startswith("G11")


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("released", "released"),
        ("given up", "moved"),
        ("lost", "membership lost"),
        ("killed", "killed"),
        ("killed, acked", "killed, acked and not durable"),
        ("forgotten", "timed out"),
        ("closed", "left"),
    ],
)
def test_a_repetition_is_explained_by_what_ended_the_delivery_before_it(how: str, reason: str) -> None:
    one, two = Witness("one", killed=4 if how.startswith("killed") else inf), Witness("two")
    number = one.take(1, 1)
    match how:
        case "released":
            one.note(Kind.RELEASING, 2, n=[number])
        case "given up" | "lost":
            one.lose(3, how)
        case "killed, acked":
            one.ack(2, number)
        case "closed":
            one.note(Kind.CLOSED, 4)
    two.ack(11, two.take(10, 1, redelivered=True), durable=12)
    found = verdict(one, two)
    assert (found.findings, found.again, found.flagged) == ([], {reason: 1}, 1)


def test_g9_finds_a_repetition_that_nothing_explains() -> None:
    one, two = Witness("one"), Witness("two")
    one.ack(2, one.take(1, 1))
    two.ack(4, two.take(3, 1), durable=5)
    assert verdict(one, two).findings[0].startswith("G9")


def test_g9_finds_two_holders_of_a_message() -> None:
    one, two = Witness("one"), Witness("two")
    number = one.take(1, 1)
    two.ack(2.5, two.take(2, 1), durable=3)
    one.lose(3)
    one.note(Kind.VAIN, 3, n=[number])
    assert {finding[:2] for finding in verdict(one, two).findings} == {"G9"}


def test_g13_finds_two_messages_of_a_key_in_work_at_once() -> None:
    one = Witness("one")
    first, second = one.take(1, 1), one.take(2, 2)
    one.ack(3, first, durable=5)
    one.ack(4, second, durable=5)
    [finding] = verdict(one, messages={1: ("k", "v1"), 2: ("k", "v2")}).findings
    assert finding.startswith("G13")


@pytest.mark.parametrize("what", ["holder", "broker"])
def test_a_holder_that_was_not_heard_of_for_a_session_may_learn_late_that_it_is_none(what: str) -> None:
    still = [(2.0, 11.0)]
    one, two = Witness("one", *still if what == "holder" else ()), Witness("two")
    number = one.take(1, 1)
    two.ack(9.5, two.take(9, 1), durable=10)
    one.lose(11.5, "lost")
    one.note(Kind.VAIN, 11.5, n=[number])
    found = verdict(one, two, lock_timeout=None, outages=still if what == "broker" else ())
    assert (found.findings, found.overlaps, found.again) == ([], 1, {"its holder was not heard of": 1})


@pytest.mark.parametrize(("newer", "promises"), [(2, set()), (1, {"G9"})])
def test_of_a_holder_that_was_not_heard_of_only_the_ack_of_a_message_that_was_replaced_may_count(
    newer: int, promises: set[str]
) -> None:
    """It was done when the newer one was read, and was committed as done."""
    one, two = Witness("one", (2.0, 11.0)), Witness("two")
    one.ack(11.1, one.take(1, 1), durable=11.2)
    two.ack(9.5, two.take(9, newer), durable=10)
    one.lose(11.5, "lost")
    found = verdict(one, two, lock_timeout=None, messages={1: ("k", "v1"), 2: ("k", "v2")} if newer == 2 else None)
    assert {finding[:2] for finding in found.findings} == promises
    assert found.overlaps == (newer == 2)


@pytest.mark.parametrize("what", ["holder", "broker"])
@pytest.mark.parametrize("still", [(2.0, 3.0), (20.0, 30.0)])
def test_a_stop_that_was_too_short_or_too_late_excuses_nothing(still: tuple[float, float], what: str) -> None:
    one, two = Witness("one", *[still] if what == "holder" else ()), Witness("two")
    number = one.take(1, 1)
    two.ack(3.6, two.take(3.5, 1), durable=4)
    one.lose(31, "lost")
    one.note(Kind.VAIN, 31, n=[number])
    found = verdict(one, two, lock_timeout=None, outages=[still] if what == "broker" else ())
    assert {finding[:2] for finding in found.findings} == {"G9"}


def test_g12_finds_an_older_value_after_a_newer_one_was_durable() -> None:
    one, two = Witness("one"), Witness("two")
    one.ack(2, one.take(1, 2), durable=3)
    two.ack(5, two.take(4, 1), durable=6)
    [finding] = verdict(one, two, messages={1: ("k", "v1"), 2: ("k", "v2")}).findings
    assert finding.startswith("G12")


def test_g12_finds_a_step_back_within_one_assignment() -> None:
    one = Witness("one")
    one.ack(2, one.take(1, 2))
    one.ack(4, one.take(3, 1))
    [finding] = verdict(one, messages={1: ("k", "v1"), 2: ("k", "v2")}).findings
    assert "in one assignment" in finding


def test_an_older_value_may_come_after_a_newer_one_that_was_not_durable_when_the_partition_moved() -> None:
    one, two = Witness("one"), Witness("two")
    one.ack(2.9, one.take(1, 2))
    one.lose(3)
    two.ack(5, two.take(4, 1), durable=6)
    two.ack(8, two.take(7, 2), durable=9)
    assert verdict(one, two, messages={1: ("k", "v1"), 2: ("k", "v2")}).findings == []


class TestHandOver:
    """A final commit that never leaves: it breaks no promise of the contract, but is a fault anyway."""

    @staticmethod
    def given_up(
        *,
        acked: float = 32.0,
        how: str = "given up",
        closing: float | None = None,
        said: str = "",
        stops: Sequence[tuple[float, float]] = (),
        outages: Sequence[tuple[float, float]] = (),
        refused: bool = False,
    ) -> Verdict:
        """Let one ack, and give the partition up at 33; two gets it at 40."""
        one, two = Witness("one", *stops), Witness("two")
        number = one.take(31, 1)
        if said:
            one.note(Kind.SAID, 31.5, text=said)
        one.ack(acked, number)
        if closing is not None:
            one.note(Kind.CLOSING, closing)
        one.note(Kind.VAIN, acked if refused else 33, n=[number], **({"refused": True} if refused else {}))
        one.lose(33, how)
        two.ack(41, two.take(40, 1, redelivered=True), durable=42)
        return verdict(one, two, outages=outages)

    def test_finds_what_was_acked_and_comes_again(self) -> None:
        found = self.given_up()
        [finding] = found.findings
        assert finding.startswith("G11")
        assert "in order" in finding
        assert found.handed_over == 1

    def test_a_consumer_that_leaves_takes_even_the_last_ack_along(self) -> None:
        assert self.given_up(acked=32.99, closing=32.995).findings
        assert not self.given_up(acked=32.99).findings, "it may have come after the last commit"
        assert not self.given_up(acked=32.99, closing=20).findings, "another one was closed"

    @pytest.mark.parametrize("text", ["INFO all is well", "WARNING q/0/1 was rejected and removed: at random"])
    def test_not_all_that_is_said_is_trouble(self, text: str) -> None:
        assert self.given_up(said=text).findings

    @pytest.mark.parametrize(
        "trouble",
        [
            {"how": "lost"},
            {"said": "WARNING the consumer of q continues despite: no broker"},
            {"stops": [(30, 30.5)]},
            {"stops": [(32.5, 32.9)]},
            {"outages": [(20, 25)]},
            {"outages": [(32.9, 36)]},
            {"refused": True},
        ],
        ids=str,
    )
    def test_trouble_excuses_it(self, trouble: dict[str, Any]) -> None:
        found = self.given_up(**trouble)
        assert (found.findings, found.handed_over) == ([], 0)

    @pytest.mark.parametrize(
        "elsewhere", [{"stops": [(1, 10)]}, {"outages": [(34, 39)]}, {"outages": [(1, 22)]}], ids=str
    )
    def test_trouble_at_another_time_does_not(self, elsewhere: dict[str, Any]) -> None:
        assert self.given_up(**elsewhere).findings

    def test_an_acked_message_that_stays_away_is_all_right(self) -> None:
        one = Witness("one")
        number = one.take(31, 1)
        one.ack(32, number)
        one.note(Kind.VAIN, 33, n=[number])
        one.lose(33)
        found = verdict(one)
        assert (found.findings, found.handed_over) == ([], 1)


class TestDeadLetters:
    def test_a_message_that_was_rejected_and_has_its_dead_letter_is_all_right(self) -> None:
        one = Witness("one")
        reason = one.reject(2, one.take(1, 1), durable=3)
        found = verdict(one, letters=[letter(reason, 2)])
        assert (found.findings, found.letters) == ([], {"rejected": 1})

    def test_finds_one_that_was_rejected_durably_and_has_none(self) -> None:
        one = Witness("one")
        one.reject(2, one.take(1, 1), durable=3)
        assert any(finding.startswith("lost") for finding in verdict(one).findings)
        assert any(finding.startswith("G10") for finding in verdict(one).findings)

    def test_finds_one_that_comes_again_after_it_was_rejected_durably(self) -> None:
        one, two = Witness("one", killed=4), Witness("two")
        reason = one.reject(2, one.take(1, 1), durable=3)
        two.ack(6, two.take(5, 1), durable=7)
        assert any(finding.startswith("G11") for finding in verdict(one, two, letters=[letter(reason, 2)]).findings)

    def test_a_crash_between_the_dead_letter_and_the_commit_brings_the_message_again_and_perhaps_a_second(self) -> None:
        one, two = Witness("one", killed=3), Witness("two")
        first = one.reject(2, one.take(1, 1))
        second = two.reject(6, two.take(5, 1), durable=7)
        found = verdict(one, two, letters=[letter(first, 2), letter(second, 6)])
        assert (found.findings, found.again) == ([], {"killed, rejected and not durable": 1})

    def test_an_outage_may_leave_copies_of_one(self) -> None:
        one = Witness("one")
        reason = one.reject(2, one.take(1, 1), durable=9)
        copies = [letter(reason, 2), letter(reason, 8)]
        assert verdict(one, letters=copies, outages=[(2.1, 7)]).findings == []
        assert len(verdict(one, letters=copies).findings) == 1
        assert len(verdict(one, letters=copies, outages=[(9, 12)]).findings) == 1
        assert verdict(one, letters=[copies[0], replace(copies[1], value="v2")], outages=[(2.1, 7)]).findings

    def test_one_that_could_not_be_stored_brings_the_message_again(self) -> None:
        one = Witness("one")
        number = one.take(1, 1)
        one.reject(2, number)
        one.note(Kind.VAIN, 2.5, n=[number])
        reason = one.reject(5, one.take(4, 1), durable=6)
        assert verdict(one, letters=[letter(reason, 5, count=2)]).findings == []

    def test_finds_a_repetition_that_a_rejection_does_not_explain(self) -> None:
        one, two = Witness("one"), Witness("two")
        reason = one.reject(2, one.take(1, 1))
        two.ack(4, two.take(3, 1), durable=5)
        assert verdict(one, two, letters=[letter(reason, 2)]).findings[0].startswith("G9")

    def test_finds_two_of_one_rejection(self) -> None:
        one = Witness("one")
        reason = one.reject(2, one.take(1, 1), durable=3)
        [finding] = verdict(one, letters=[letter(reason, 2), letter(reason, 2)]).findings
        assert "has 2 dead letters" in finding

    def test_finds_one_that_nobody_has_asked_for(self) -> None:
        one = Witness("one")
        one.ack(2, one.take(1, 1), durable=3)
        [finding] = verdict(one, letters=[letter("one, 1", 2)]).findings
        assert "nobody has rejected it" in finding

    def test_finds_one_that_is_another_message(self) -> None:
        one = Witness("one")
        reason = one.reject(2, one.take(1, 1), durable=3)
        [finding] = verdict(one, letters=[letter(reason, 2, value="something else")]).findings
        assert "is not what was sent" in finding

    def test_finds_one_that_counts_otherwise_than_the_delivery(self) -> None:
        one = Witness("one")
        reason = one.reject(2, one.take(1, 1), durable=3)
        [finding] = verdict(one, letters=[letter(reason, 2, count=2)]).findings
        assert "says 2 deliveries, it was the 1." in finding

    @staticmethod
    def released(times: int) -> Witness:
        """Let one take message 1 at 1, 2, … and release it."""
        one = Witness("one")
        one.get(0)
        for at in range(1, times + 1):
            one.note(Kind.RELEASING, at + 0.5, n=[one.take(at, 1)])
        return one

    def test_a_message_delivered_as_often_as_allowed_with_a_dead_letter_need_not_be_acked(self) -> None:
        found = verdict(self.released(MOST), letters=[given_up(4, MOST)])
        assert (found.findings, found.letters) == ([], {"delivered too often": 1})

    def test_g10_finds_what_is_delivered_as_often_as_allowed_and_has_none(self) -> None:
        [finding] = verdict(self.released(MOST)).findings
        assert finding.startswith("G10")

    def test_finds_what_is_given_up_though_it_was_delivered_less_often(self) -> None:
        [finding] = verdict(self.released(1), letters=[given_up(4, MOST)]).findings
        assert "no more than 1 can have been counted" in finding
        [finding] = verdict(self.released(1), letters=[given_up(4, 1)]).findings
        assert f"{MOST} are allowed" in finding

    @pytest.mark.parametrize("end", ["killed", "lost", "failed", "given up in trouble", "stopped for too long"])
    def test_one_who_counts_durably_and_goes_without_notice_may_have_counted_what_nobody_got(self, end: str) -> None:
        one, two = self.released(1), Witness("two")
        match end:
            case "killed":
                one.life.killed = 3
            case "lost":
                one.lose(3, "lost")
            case "failed":
                one.note(Kind.CLOSED, 3)
            case "given up in trouble":
                one.note(Kind.SAID, 2.5, text="WARNING the consumer of q continues despite: no broker")
                one.lose(3)
            case "stopped for too long":
                one.life.stops = [(2, 20)]
                one.lose(21, "lost")
        two.get(10)
        letters = [given_up(11, MOST)]
        assert "no more than 1" in verdict(one, two, letters=letters).findings[0]
        one.life.counts = True
        assert verdict(one, two, letters=letters).findings == []

    def test_one_who_goes_in_peace_has_not(self) -> None:
        one, two = self.released(1), Witness("two")
        one.life.counts = True
        one.lose(3)
        two.get(4)
        assert "no more than 1" in verdict(one, two, letters=[given_up(5, MOST)]).findings[0]

    @pytest.mark.parametrize("decided", [Kind.DURABLE, Kind.ABORTED, Kind.UNKNOWN, None])
    def test_one_whose_transaction_commits_when_it_goes_may_have(self, decided: Kind | None) -> None:
        one, two = self.released(1), Witness("two")
        one.life.counts = True
        one.note(Kind.ACKING, 2, n=[])
        if decided is not None:
            one.note(decided, 2.5, n=[])
        one.lose(3)
        two.get(4)
        found = verdict(one, two, letters=[given_up(5, MOST)], output=[]).findings
        assert any("no more than 1" in finding for finding in found) == (decided in (Kind.DURABLE, Kind.ABORTED))

    def test_g11_finds_what_is_given_up_after_a_durable_ack(self) -> None:
        one = self.released(MOST)
        one.ack(5, one.take(4, 1), durable=6)
        [finding] = verdict(one, letters=[given_up(8, MOST)]).findings
        assert finding.startswith("G11")


class TestCounts:
    @staticmethod
    def delivered(*counts: int, durably: tuple[bool, ...]) -> Verdict:
        """Give a message to one consumer after the other; each is killed, and the last one acks."""
        witnesses = []
        for index, (count, durable) in enumerate(zip(counts, durably)):
            at = 10.0 * index
            witness = Witness(str(index))
            witness.life.counts = durable
            witness.get(at)
            number = witness.take(at + 1, 1, count=count)
            if index < len(counts) - 1:
                witness.life.killed = at + 2
            else:
                witness.ack(at + 2, number, durable=at + 3)
            witnesses.append(witness)
        return verdict(*witnesses)

    def test_a_count_that_goes_on_is_all_right(self) -> None:
        found = self.delivered(1, 2, 3, durably=(True, True, False))
        assert (found.findings, found.remembered) == ([], 2)

    def test_finds_a_durable_count_that_was_forgotten(self) -> None:
        [finding] = self.delivered(1, 1, durably=(True, False)).findings
        assert "says delivery 1; it was 1 at" in finding

    def test_a_consumer_that_does_not_count_durably_is_forgotten_and_forgets(self) -> None:
        found = self.delivered(1, 1, durably=(False, True))
        assert (found.findings, found.remembered) == ([], 0)
        one, two, three = Witness("one", killed=2), Witness("two", killed=4), Witness("three")
        one.life.counts = three.life.counts = True
        for at, witness in (0, one), (3, two), (5, three):
            witness.get(at)
        one.take(1, 1)
        three.ack(7, three.take(6, 1), durable=8)
        assert (verdict(one, two, three).findings, verdict(one, two, three).remembered) == ([], 0)

    def test_finds_a_count_that_was_forgotten_within_one_assignment(self) -> None:
        one = TestDeadLetters.released(1)
        one.ack(5, one.take(4, 1, count=1), durable=6)
        [finding] = verdict(one).findings
        assert "says delivery 1; it was 1 at" in finding

    def test_finds_a_count_that_is_made_up(self) -> None:
        one = TestDeadLetters.released(1)
        one.ack(5, one.take(4, 1, count=3), durable=6)
        [finding] = verdict(one).findings
        assert "no more than 2 can have been counted" in finding

    def test_each_crash_may_count_one_that_nobody_got(self) -> None:
        assert self.delivered(1, 3, 5, durably=(True, True, True)).findings == []
        [finding] = self.delivered(1, 4, durably=(True, True)).findings
        assert "no more than 3" in finding


class TestTransactions:
    def output(self, *numbers: int, offset: int = 1) -> list[Output]:
        return [Output("one", number, (0, offset), "k", f"v{offset}") for number in numbers]

    def test_a_committed_message_is_there_once(self) -> None:
        one = Witness("one")
        one.ack(2, one.take(1, 1), durable=3)
        assert verdict(one, output=self.output(1)).findings == []

    def test_finds_what_is_there_twice(self) -> None:
        one = Witness("one")
        one.ack(2, one.take(1, 1), durable=3)
        assert any(finding.startswith("twice") for finding in verdict(one, output=self.output(1, 2)).findings)

    def test_finds_what_is_missing(self) -> None:
        one = Witness("one")
        one.ack(2, one.take(1, 1), durable=3)
        assert [finding.split()[0] for finding in verdict(one, output=[]).findings] == ["lost:", "0/1"]

    def test_finds_what_was_aborted_and_is_there(self) -> None:
        one = Witness("one")
        number = one.take(1, 1)
        one.ack(2, number)
        one.note(Kind.ABORTED, 3, n=[number])
        one.ack(5, one.take(4, 1), durable=6)
        assert verdict(one, output=self.output(2)).findings == []
        assert any("was not committed" in finding for finding in verdict(one, output=self.output(1)).findings)

    def test_a_rejected_message_has_a_dead_letter_instead(self) -> None:
        one = Witness("one")
        reason = one.reject(2, one.take(1, 1), durable=3)
        assert verdict(one, output=[], letters=[letter(reason, 2)]).findings == []
        assert any(finding.startswith("lost") for finding in verdict(one, output=[]).findings)

    def test_finds_a_dead_letter_of_what_was_aborted(self) -> None:
        one = Witness("one")
        number = one.take(1, 1)
        reason = one.reject(2, number)
        one.note(Kind.ABORTED, 3, n=[number])
        one.ack(5, one.take(4, 1), durable=6)
        found = verdict(one, output=self.output(2), letters=[letter(reason, 2)]).findings
        assert any("transaction that was aborted" in finding for finding in found)

    def test_finds_what_is_in_the_output_and_has_a_dead_letter(self) -> None:
        one, two = Witness("one", killed=4), Witness("two")
        reason = one.reject(2, one.take(1, 1))
        two.ack(6, two.take(5, 1), durable=7)
        made = [Output("two", 1, (0, 1), "k", "v1")]
        assert any(
            finding.startswith("twice")
            for finding in verdict(one, two, output=made, letters=[letter(reason, 2)]).findings
        )

    def test_finds_values_of_a_key_out_of_order(self) -> None:
        one = Witness("one")
        one.ack(2, one.take(1, 1), durable=3)
        one.ack(5, one.take(4, 2), durable=6)
        output = self.output(2, offset=2) + self.output(1, offset=1)
        messages = {1: ("k", "v1"), 2: ("k", "v2")}
        assert any(finding.startswith("G12") for finding in verdict(one, messages=messages, output=output).findings)


GROUPED = {1: ("key-0001", "v1"), 2: ("key-0041", "v2"), 3: ("key-0002", "v3")}
"""The first two belong to one group."""


def test_r36_finds_a_group_in_two_sessions_of_a_process() -> None:
    one = Witness("one")
    first = one.take(1, 1, "key-0001", session=1)
    second = one.take(2, 2, "key-0041", session=2)
    one.ack(3, first, durable=4)
    one.ack(3, second, durable=4)
    one.ack(6, one.take(5, 3, "key-0002", session=2), durable=7)
    found = verdict(one, messages=GROUPED, grouped=True)
    assert len(found.findings) == 1
    assert found.findings[0].startswith("R36: 0/2 (key-0041=v2)")
    assert verdict(one, messages=GROUPED).findings == []


def test_r36_one_session_may_hold_several_messages_of_a_group_and_another_one_gets_it_afterwards() -> None:
    one, other = Witness("one"), Witness("other")
    first = one.take(1, 1, "key-0001", session=1)
    one.ack(3, one.take(2, 2, "key-0041", session=1), durable=4)
    one.ack(3, first, durable=4)
    one.ack(6, one.take(5, 3, "key-0002", session=2), durable=7)
    found = verdict(one, messages=GROUPED, grouped=True)
    assert (found.findings, found.grouped) == ([], 1)
    one.take(10, 4, "key-0001", session=2)
    messages = {**GROUPED, 4: ("key-0001", "v4"), 5: ("key-0081", "v5")}
    other.ack(12, other.take(11, 5, "key-0081", session=1), durable=13)
    findings = verdict(one, other, messages=messages, grouped=True).findings
    assert not any(finding.startswith("R36") for finding in findings), "another process has other partitions"


def test_r36_locks_end_before_it_is_said_that_their_partition_is_given_up() -> None:
    one = Witness("one")
    one.take(1, 1, "key-0001", session=1)
    one.ack(3, one.take(2, 2, "key-0041", session=2), durable=4)
    one.lose(2.1)
    assert not any(finding.startswith("R36") for finding in verdict(one, messages=GROUPED, grouped=True).findings)
