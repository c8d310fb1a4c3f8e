"""R39: messages of a queue that was altered are judged by the terms of their append time, in all judges."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.core.latest.fold import LatestValues
from lvq_kafka.core.log.records import Record, RecordBatch
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER, DueTimes
from lvq_kafka.core.timing.earlier_terms import EarlierTerms
from lvq_kafka.core.timing.expiry_times import ExpiryTimes
from lvq_kafka.core.timing.time_rule import TimeRule
from lvq_kafka.core.timing.ttl import NEVER, TTL_HEADER, Ttl
from tests.property.test_fold import expected
from tests.rules import rules

Headers = tuple[tuple[str, bytes | None], ...]

ttls = st.sampled_from(
    [None, Ttl(never=True), Ttl(), Ttl(default=0.3), Ttl(maximum=1), Ttl(minimum=0.2, maximum=0.9), Ttl(default=2.0)]
)
delays = st.sampled_from([None, 0.2, 1.5])
headers = st.lists(
    st.tuples(
        st.sampled_from([TTL_HEADER, NOT_BEFORE_HEADER, "other"]),
        st.sampled_from([None, b"0", b"soon", b"400", b"1200", b"2600"]),
    ),
    max_size=3,
).map(tuple)
messages = st.lists(st.tuples(st.integers(0, 3000), headers), max_size=12)


@st.composite
def altered(draw: st.DrawFn) -> TimeRule:
    untils = sorted(draw(st.sets(st.integers(0, 3000), max_size=4)))
    earlier = tuple(EarlierTerms(until=until, ttl=draw(ttls), max_delay=draw(delays)) for until in untils)
    return TimeRule(draw(ttls), draw(delays), earlier=earlier)


def at(rule: TimeRule, timestamp: int) -> TimeRule:
    """Return the rule of a queue that always had what this one had at a time."""
    for terms in rule.earlier:
        if timestamp < terms.until:
            return TimeRule(terms.ttl, terms.max_delay)
    return TimeRule(rule.ttl, rule.max_delay)


def expiry(rule: TimeRule, timestamp: int, cells: Headers) -> int:
    judge = at(rule, timestamp).expiry_times()
    return NEVER if judge is None else judge.expiry(timestamp, cells)


def due(rule: TimeRule, timestamp: int, cells: Headers) -> int:
    judge = at(rule, timestamp).due_times()
    return timestamp if judge is None else judge.due(timestamp, cells)


@given(altered(), messages)
def test_r39_each_message_is_judged_as_in_a_queue_that_always_had_what_it_had_then(
    rule: TimeRule, written: Sequence[tuple[int, Headers]]
) -> None:
    expiries = [expiry(rule, *message) for message in written]
    dues = [due(rule, *message) for message in written]
    timestamps, cells = [timestamp for timestamp, _ in written], [headers for _, headers in written]
    if (lifetimes := rule.expiry_times()) is None:
        assert expiries == [NEVER] * len(written)
    else:
        assert [lifetimes.expiry(*message) for message in written] == expiries
        assert lifetimes.expiries(timestamps, cells, plain=False) == expiries
    if (schedule := rule.due_times()) is None:
        assert dues == timestamps
    else:
        assert [schedule.due(*message) for message in written] == dues
        assert schedule.scheduled(timestamps, cells) == [
            (row, when) for row, when in enumerate(dues) if when > timestamps[row]
        ]
        longest = rule.longest_delay
        assert longest is not None
        assert all(when <= timestamp + 1000 * longest for when, timestamp in zip(dues, timestamps))


@given(altered(), messages)
def test_r39_headers_are_unreadable_only_where_they_had_a_meaning(
    rule: TimeRule, written: Sequence[tuple[int, Headers]]
) -> None:
    for judge, alone in (
        (rule.expiry_times(), TimeRule.expiry_times),
        (rule.due_times(), TimeRule.due_times),
    ):
        unreadable = 0
        for timestamp, cells in written:
            one: ExpiryTimes | DueTimes | None = alone(at(rule, timestamp))  # type: ignore[operator]
            if isinstance(one, ExpiryTimes):
                one.expiry(timestamp, cells)
            elif one is not None:
                one.due(timestamp, cells)
            unreadable += 0 if one is None else one.malformed
            if isinstance(judge, ExpiryTimes):
                judge.expiry(timestamp, cells)
            elif judge is not None:
                judge.due(timestamp, cells)
        assert unreadable == (0 if judge is None else judge.malformed)
        assert judge is None or (judge.example is not None) <= (unreadable > 0)


@given(
    altered(),
    st.lists(st.tuples(st.integers(0, 900), st.sampled_from([b"a", b"b", b"c"]), headers), max_size=20),
    st.data(),
)
def test_r8_r39_the_fold_of_an_altered_queue_shows_what_has_not_expired_by_the_rule_of_its_time(
    rule: TimeRule, draws: Sequence[tuple[int, bytes, Headers]], data: st.DataObject
) -> None:
    now, written = 0, []
    for offset, (later, key, cells) in enumerate(draws):
        now += later
        written.append(Record(0, offset, now, key, b"v", cells))
    latest = LatestValues(1, rules(ttl=rule.ttl, earlier=rule.earlier))
    at = clock = 0
    while at < len(written):
        size = data.draw(st.integers(1, 6))
        latest.apply(RecordBatch.of(written[at : at + size]))
        at += size
        clock += data.draw(st.integers(0, 1500))
        while latest.expire(clock, most=3):
            pass
        alive = {
            key: record
            for key, record in expected([written[:at]]).items()
            if expiry(rule, record.timestamp, tuple(record.headers)) >= clock
        }
        assert {record.key: record for record in latest.table.records()} == alive
