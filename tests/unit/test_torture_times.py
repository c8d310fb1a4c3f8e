"""The judge of the torture test on messages that expire or are scheduled: it finds faults of a millisecond."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

from tests.torture.dead_letters import DeadLetter
from tests.torture.journal import Kind
from tests.torture.judge import Output, Verdict
from tests.torture.lifetimes import ExpiryLetter, Times
from tests.torture.tape import Logged, Rule
from tests.torture.viewing import Sight
from tests.unit.witnesses import MOST, Witness, verdict


def value(
    offset: int,
    key: str = "k",
    *,
    content: str | None = "",
    appended: int = 1000,
    due: int = 0,
    expires: int = 5000,
) -> Logged:
    """Return a record, which is due at its append time unless the test says otherwise."""
    return Logged(key, content if content is None else content or f"v{offset}", appended, due or appended, expires)


def expired(
    at: int, *, offset: int = 1, content: str = "", reason: str = "expired", mortal: bool = False
) -> ExpiryLetter:
    return ExpiryLetter((0, offset), "k", content or f"v{offset}", reason, at, mortal)


class TestExpiry:
    """Messages with times, in ms: appended at 1 s, and expired after 5 s, unless a test says otherwise."""

    @staticmethod
    def times(
        *letters: ExpiryLetter, log: Mapping[int, Logged] | None = None, sights: Sequence[Sight] = ()
    ) -> dict[str, Any]:
        records = {(0, offset): record for offset, record in (log or {1: value(1)}).items()}
        return {
            "times": Times(records, letters, 0.0, sights),
            "messages": {offset: (record.key, record.value) for (_, offset), record in records.items()},
        }

    def test_a_message_that_expires_and_has_its_letter_need_not_be_delivered(self) -> None:
        found = verdict(**self.times(expired(5001)))
        assert (found.findings, found.expired, found.expired_again) == ([], 1, 0)

    def test_g10_finds_what_expires_and_has_none(self) -> None:
        [finding] = verdict(**self.times()).findings
        assert finding.startswith("G10: 0/1 ")

    def test_g10_finds_what_was_delivered_and_expired_and_has_none(self) -> None:
        one = Witness("one", killed=4)
        one.take(2, 1, clock=2000)
        [finding] = verdict(one, **self.times()).findings
        assert "was never acked, has no letter" in finding
        assert verdict(one, **self.times(expired(9000))).findings == []

    def test_a_message_replaced_by_a_newer_value_needs_no_letter(self) -> None:
        one = Witness("one")
        one.ack(7, one.take(6, 2, clock=6000, appended=5500, expires=10_000), durable=8)
        log = {1: value(1), 2: value(2, appended=5500, expires=10_000)}
        assert verdict(one, **self.times(log=log)).findings == []

    @pytest.mark.parametrize(("clock", "late"), [(4999, False), (5000, False), (5001, True)])
    def test_r10_finds_what_is_handed_out_a_millisecond_late(self, clock: int, late: bool) -> None:
        one = Witness("one")
        one.ack(5.2, one.take(5.1, 1, clock=clock), durable=5.3)
        found = verdict(one, **self.times())
        assert [finding[:4] for finding in found.findings] == (["R10:"] if late else [])
        assert found.late == 1, "it was acked after its time, which its holder may do"

    def test_r10_finds_a_consumer_that_did_not_look_at_the_clock(self) -> None:
        one = Witness("one")
        one.ack(3, one.take(2, 1, expires=5000), durable=4)
        [finding] = verdict(one, **self.times()).findings
        assert "without a look at the clock" in finding

    def test_finds_a_delivery_that_says_other_times_than_the_log(self) -> None:
        one = Witness("one")
        one.ack(3, one.take(2, 1, clock=2000, expires=6000), durable=4)
        [finding] = verdict(one, **self.times()).findings
        assert "the log says" in finding

    def test_r10_finds_a_letter_that_comes_too_early(self) -> None:
        assert "before the message was due and had expired" in verdict(**self.times(expired(5000))).findings[0]

    @pytest.mark.parametrize(
        "wrong",
        [{"content": "something else"}, {"reason": "at random"}, {"mortal": True}],
        ids=lambda wrong: next(iter(wrong)),
    )
    def test_finds_a_letter_that_is_not_as_it_should_be(self, wrong: dict[str, Any]) -> None:
        assert len(verdict(**self.times(expired(5001, **wrong))).findings) == 1

    def test_r10_finds_a_letter_of_what_was_consumed(self) -> None:
        one, two = Witness("one"), Witness("two")
        one.get(0)
        one.ack(3, one.take(2, 1, clock=2000), durable=4)
        one.lose(4.5)
        two.get(5)
        [finding] = verdict(one, two, **self.times(expired(6000))).findings
        assert "although" in finding

    def test_a_former_owner_that_does_not_know_may_write_one(self) -> None:
        one, two = Witness("one", (0.5, 5.9)), Witness("two")
        one.get(0)
        two.get(1.5)
        two.ack(3, two.take(2, 1, clock=2000), durable=4)
        one.lose(6.1, "lost")
        assert verdict(one, two, **self.times(expired(6000))).findings == []

    @pytest.mark.parametrize(("durable", "wrong"), [(4.0, True), (5.5, False)])
    def test_r10_finds_a_letter_of_what_was_replaced_by_a_value_consumed_before(
        self, durable: float, wrong: bool
    ) -> None:
        """One that expired first may have to wait for its letter, however."""
        one = Witness("one")
        one.get(0)
        one.ack(3, one.take(2.5, 2, clock=2500, appended=2000, expires=9000), durable=durable)
        log = {1: value(1), 2: value(2, appended=2000, expires=9000)}
        found = verdict(one, **self.times(expired(6000), log=log)).findings
        assert bool(found) == wrong

    def test_finds_what_has_a_letter_and_is_in_the_output(self) -> None:
        one = Witness("one", killed=3.5)
        one.take(2, 1, clock=2000)
        one.note(Kind.UNKNOWN, 3, n=[1])
        output = [Output("one", 1, (0, 1), "k", "v1")]
        [finding] = verdict(one, output=output, **self.times(expired(6000))).findings
        assert finding.startswith("twice")

    def test_a_message_with_a_letter_need_not_be_in_the_output(self) -> None:
        assert verdict(output=[], **self.times(expired(6000))).findings == []

    def test_r8_finds_an_older_value_after_a_newer_one_has_its_letter(self) -> None:
        log = {1: value(1, expires=9000), 2: value(2, appended=2000, expires=3000)}
        one = Witness("one")
        one.get(0)
        one.ack(6.5, one.take(6, 1, clock=6000, expires=9000), durable=7)
        [finding] = verdict(one, **self.times(expired(4000, offset=2), log=log)).findings
        assert finding.startswith("R8")
        one.life.counts = True
        assert verdict(one, **self.times(expired(4000, offset=2), log=log)).findings == []
        late = Witness("late")
        late.life.counts = True
        late.get(5)
        late.ack(6.5, late.take(6, 1, clock=6000, expires=9000), durable=7)
        [finding] = verdict(late, **self.times(expired(4000, offset=2), log=log)).findings
        assert finding.startswith("R8"), "it got the partition after the letter"
        one.life.counts = False
        one.life.stops = [(2, 5.9)]
        two = Witness("two")
        two.get(3)
        assert verdict(one, two, **self.times(expired(4000, offset=2), log=log)).findings == []

    def test_g12_finds_a_value_that_its_consumer_knows_to_be_replaced(self) -> None:
        log = {1: value(1), 2: value(2, content=None), 3: value(3, key="l")}
        one = Witness("one")
        one.get(0)
        one.ack(2.2, one.take(2, 3, "l", clock=2000), durable=2.5)
        number = one.take(3, 1, clock=3000)
        assert verdict(one, **self.times(log=log)).findings[0].startswith("G12")
        one.ack(3.2, number, durable=3.5)
        del log[2]
        assert verdict(one, **self.times(log=log)).findings == []

    @pytest.mark.parametrize(
        ("end", "as_of", "shown"), [(2, 5000, 1), (2, 5001, None), (3, 5000, None), (1, 5000, None)], ids=str
    )
    def test_g8_finds_a_view_that_shows_what_the_log_does_not_say(
        self, end: int, as_of: int, shown: int | None
    ) -> None:
        log = {1: value(1), 2: value(2, content=None)}
        there, gone = Sight({0: end}, as_of, {"k": (0, 1)}), Sight({0: end}, as_of, {})
        right, wrong = (there, gone) if shown else (gone, there)
        assert verdict(**self.times(log=log, sights=[right])).findings == []
        [finding] = verdict(**self.times(log=log, sights=[wrong])).findings
        assert finding.startswith("G8")


class TestScheduled:
    """Message 2 is due at 3 s, and counts in place of message 1 from then on, unless a test says otherwise."""

    LOG: ClassVar = {1: value(1, expires=9000), 2: value(2, due=3000, expires=9000), 3: value(3, "l", expires=9000)}

    @staticmethod
    def one(*clocks: tuple[int, int], ahead: bool = False, late: float = 0.05) -> Witness:
        """Let one take messages, each at its time by the clock, and ack them."""
        one = Witness("one")
        one.get(0)
        for offset, clock in clocks:
            at, key = clock / 1000 + late, "l" if offset == 3 else "k"
            number = one.take(at, offset, key, clock=clock, expires=9000, ahead=ahead)
            one.ack(at + 0.1, number, durable=at + 0.2)
        return one

    def found(self, one: Witness, *letters: ExpiryLetter, log: Mapping[int, Logged] | None = None) -> Verdict:
        return verdict(one, **TestExpiry.times(*letters, log=log or self.LOG))

    def test_each_counts_in_its_time(self) -> None:
        found = self.found(self.one((1, 2000), (3, 2500), (2, 3000)))
        assert (found.findings, found.scheduled, found.beneath) == ([], 1, 1)
        found = self.found(self.one((3, 3500), (2, 3600)))
        assert (found.findings, found.scheduled, found.beneath) == ([], 1, 0)

    def test_r11_finds_one_that_is_handed_out_a_millisecond_early(self) -> None:
        [finding] = self.found(self.one((1, 2000), (3, 2500), (2, 2999))).findings
        assert finding.startswith("R11")

    def test_g10_finds_one_that_got_lost(self) -> None:
        [finding] = self.found(self.one((1, 2000), (3, 2500))).findings
        assert finding.startswith("G10: 0/2")

    def test_g12_finds_a_value_after_the_scheduled_one_above_it_is_due(self) -> None:
        found = self.found(self.one((3, 2000), (1, 3000), (2, 4000))).findings
        assert [finding[:3] for finding in found] == ["G12"]
        assert self.found(self.one((3, 2000), (1, 2999), (2, 4000))).findings == []

    def test_one_to_be_counted_durably_may_be_chosen_before(self) -> None:
        one = self.one((3, 2000), (1, 3000), (2, 4000))
        one.life.counts = True
        assert self.found(one).findings == []

    def test_one_taken_ahead_is_the_newest_when_it_is_chosen(self) -> None:
        taken = self.one((3, 2900), (1, 3010), (2, 4000), ahead=True)
        assert self.found(taken).findings == []

    def test_r11_finds_a_value_that_counts_until_then_and_never_has_its_turn(self) -> None:
        [finding] = self.found(self.one((3, 2900), (2, 4000))).findings
        assert finding.startswith("R11: 0/1 ")
        assert "passed over" in finding
        assert self.found(self.one((3, 3000), (2, 4000))).findings == [], "it no longer counted"

    def test_a_message_that_waits_for_another_of_its_key_is_not_passed_over(self) -> None:
        one = self.one((3, 2900), (2, 4000))
        first = one.take(1.5, 0, clock=1500, appended=500, expires=9000)
        one.ack(3.5, first, durable=3.6)
        log = {0: value(0, appended=500, expires=9000), **self.LOG}
        assert self.found(one, log=log).findings == []

    def test_a_message_that_waits_for_a_dead_letter_of_its_key_is_not_passed_over(self) -> None:
        one = self.one((3, 2900), (2, 4000))
        first = one.take(1.5, 0, clock=1500, appended=500, expires=9000)
        reason = one.reject(1.8, first, durable=3.5)
        log = {0: value(0, appended=500, expires=9000), **self.LOG}
        letter = DeadLetter((0, 0), "k", "v0", 1, reason, 3.4)
        assert verdict(one, letters=[letter], **TestExpiry.times(log=log)).findings == []

    def test_a_message_that_waits_for_a_dead_letter_that_is_never_stored_is_not_passed_over(self) -> None:
        log = {0: value(0, appended=500, expires=9000), **self.LOG}
        for until, passed_over in ((2.7, True), (3.5, False)):
            one = self.one((3, 2900), (2, 4000))
            first = one.take(1.5, 0, clock=1500, appended=500, expires=9000)
            one.reject(1.8, first)
            one.note(Kind.VAIN, until, n=[first])
            assert bool(self.found(one, log=log).findings) == passed_over

    def test_a_message_that_waits_for_one_that_may_be_given_up_is_not_passed_over(self) -> None:
        log = {0: value(0, appended=500, expires=9000), **self.LOG}
        for count, passed_over in ((MOST - 1, True), (MOST, False)):
            one = self.one((3, 2900), (2, 4000))
            number = one.take(1.5, 0, clock=1500, appended=500, expires=9000, count=count)
            one.note(Kind.RELEASING, 1.6, n=[number])
            found = [finding for finding in self.found(one, log=log).findings if "passed over" in finding]
            assert bool(found) == passed_over

    @pytest.mark.parametrize("why", ["counts", "ahead"])
    def test_a_message_that_waits_for_one_set_aside_is_not_passed_over(self, why: str) -> None:
        """It is replaced before its turn, so no journal has it."""
        log = {0: value(0, appended=500, expires=9000), **self.LOG}
        one = self.one((3, 2900), (2, 4000), ahead=why == "ahead")
        assert self.found(one, log=self.LOG if why == "ahead" else log).findings[0].startswith("R11: 0/1 ")
        one.life.counts = why == "counts"
        assert self.found(one, log=log).findings == []

    def test_none_is_set_aside_once_a_newer_one_is_acked(self) -> None:
        log = {0: value(0, appended=500, expires=9000), 5: value(5, "l"), **self.LOG}
        del log[3]
        one = Witness("one")
        one.life.counts = True
        one.ack(1.6, one.take(1.5, 0, clock=1500, appended=500, expires=9000), durable=1.7)
        one.ack(3, one.take(2.9, 5, "l", clock=2900), durable=3.1)
        one.ack(4.2, one.take(4.1, 2, clock=4000, expires=9000), durable=4.3)
        assert self.found(one, log=log).findings[0].startswith("R11: 0/1 ")

    def test_r10_finds_the_letter_of_one_that_expires_before_it_is_due_and_has_it_too_early(self) -> None:
        log = {2: value(2, due=3000, expires=2000)}
        assert self.found(Witness("one"), expired(3000, offset=2), log=log).findings == []
        assert self.found(Witness("one"), expired(2999, offset=2), log=log).findings[0].startswith("R10")

    @pytest.mark.parametrize(("as_of", "shown"), [(2999, 1), (3000, 2), (9001, None)])
    def test_g8_finds_a_view_that_shows_another_one(self, as_of: int, shown: int | None) -> None:
        one, end = self.one((1, 2000), (3, 2500), (2, 3000)), {0: 3}
        for offset in (1, 2, None):
            sight = Sight(end, as_of, {} if offset is None else {"k": (0, offset)})
            found = verdict(one, **TestExpiry.times(log=self.LOG, sights=[sight])).findings
            assert [finding[:2] for finding in found] == ([] if offset == shown else ["G8"])


class TestRule:
    """The judge's own reading of the headers."""

    RULE = Rule(default_ttl=5.0, max_delay=3.0)

    @pytest.mark.parametrize(
        ("headers", "due", "expires"),
        [
            ((), 1000, 6000),
            ((("lvq-ttl", b"70"),), 1000, 1070),
            ((("lvq-not-before", b"2500"),), 2500, 6000),
            ((("lvq-not-before", b"9000"), ("lvq-ttl", b"70")), 4000, 1070),
            ((("lvq-not-before", b"10"),), 1000, 6000),
        ],
        ids=str,
    )
    def test_r10_r11_says_from_when_until_when_a_message_counts(
        self, headers: Sequence[tuple[str, bytes | None]], due: int, expires: int
    ) -> None:
        assert self.RULE.logged("k", "v1", 1000, headers) == Logged("k", "v1", 1000, due, expires)
