"""The commit pipeline: one commit on its way, answers lost, late, doubled or out of order, and notifications."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.consumer.commits import Answer, Commits, Count, Flight
from lvq_kafka.core.ledger.ledger import Item
from lvq_kafka.core.waiting.lifecycle import MessageState
from tests.effort import examples
from tests.unit.core.queues import Queue

TAG = b"\x01" * 8
STORED, UNKNOWN, TOO_LARGE = Answer.STORED, Answer.UNKNOWN, Answer.TOO_LARGE


class Pipe:
    """A queue with this many messages, all of them in work, and its commits."""

    def __init__(
        self, messages: int, *, loaded: CommitMap | None = None, limit: int = 4095, counted: bool = False
    ) -> None:
        records = [(str(number), "v") for number in range(messages)]
        self.queue = Queue(*records, loaded=loaded, limit=limit, count_deliveries=counted)
        self.ledger = self.queue.ledger
        self.commits: Commits[str] = Commits(self.ledger)
        self.commits.track(0, CommitMap(0) if loaded is None else loaded, tag=TAG, partitions=1)
        self.items: list[Item] = []
        while (item := self.ledger.acquire()) is not None:
            self.items.append(item)
        self._counts: list[Count] = []
        self._at_once: list[str] = []

    def wait(self, offset: int, who: str) -> None:
        if self.commits.wait_done(0, offset, who):
            self._at_once.append(who)

    def count(self) -> None:
        self._counts.append(self.commits.wait_stored(0))

    def ack(self, *offsets: int, wait: bool = True) -> None:
        for item in self.items:
            if item.offset in offsets:
                self.ledger.ack(item)
                if wait:
                    self.wait(item.offset, str(item.offset))

    def fly(self) -> Flight[str]:
        flight = self.commits.prepare()
        assert flight is not None
        return flight

    def commit(self, answer: Answer | Mapping[int, Answer] = STORED) -> CommitMap:
        flight = self.fly()
        self.commits.landed(flight, answer)
        return flight.maps[0]

    @property
    def told(self) -> list[str]:
        done = [count for count in self._counts if count.done]
        self._counts = [count for count in self._counts if not count.done]
        at_once, self._at_once = self._at_once, []
        return [*at_once, *self.commits.pop_ready(), *["counted"] * len(done)]


# --- what is sent ---------------------------------------------------------------------------------------------------


def test_the_first_commit_writes_what_was_loaded_in_this_topics_name() -> None:
    loaded = CommitMap(0, delivered=1, sequence=41)
    pipe = Pipe(1, loaded=loaded)
    assert pipe.commit() == CommitMap(0, topic_tag=TAG, partitions=1, sequence=42, delivered=1)
    assert pipe.commits.prepare() is None
    assert pipe.commits.sent == 1


def test_nothing_is_written_anew_where_the_group_holds_all_of_it() -> None:
    loaded = CommitMap(0, (2, 1), topic_tag=TAG, partitions=1, sequence=7, delivered=3)
    queue = Queue(("a", "a"), ("b", "b"), ("c", "c"), loaded=loaded)
    commits: Commits[str] = Commits(queue.ledger)
    commits.track(0, loaded, tag=TAG, partitions=1)
    assert commits.prepare() is None


def test_acks_gather_while_a_commit_is_on_its_way() -> None:
    pipe = Pipe(4)
    pipe.ack(1)
    flight = pipe.fly()
    assert pipe.commits.in_flight
    pipe.ack(2)
    pipe.ack(3)
    assert pipe.told == []
    pipe.commits.landed(flight, STORED)
    assert not pipe.commits.in_flight
    assert pipe.told == ["1"]
    assert pipe.commit().runs == (1, 3)
    assert pipe.told == ["2", "3"]
    assert pipe.commits.last(0).sequence == 2


def test_a_commit_is_for_the_partitions_that_were_asked_for_and_have_changed() -> None:
    pipe = Pipe(1)
    pipe.ledger.assign(1, CommitMap(0), 0)
    pipe.commits.track(1, CommitMap(0), tag=TAG, partitions=1)
    first = pipe.commits.prepare([1, 9])
    assert first is not None
    assert first.maps.keys() == {1}
    pipe.commits.landed(first, STORED)
    assert pipe.fly().maps.keys() == {0}


def test_a_partition_that_is_not_begun_is_not_committed() -> None:
    pipe = Pipe(1)
    pipe.ledger.assign(1, CommitMap(0), 0)
    assert pipe.fly().maps.keys() == {0}


# --- answers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [UNKNOWN, TOO_LARGE, {}, {0: UNKNOWN}, {7: STORED}])
def test_without_a_good_answer_nobody_is_told_and_the_next_commit_says_it_all_again(
    answer: Answer | Mapping[int, Answer],
) -> None:
    pipe = Pipe(3)
    pipe.ack(1)
    said = pipe.commit(answer)
    assert pipe.told == []
    assert pipe.commits.last(0) == CommitMap(0)
    again = pipe.commit()
    assert (again.runs, again.sequence) == (said.runs, said.sequence + 1)
    assert pipe.told == ["1"]


def test_an_answer_that_comes_twice_is_taken_once() -> None:
    pipe = Pipe(2)
    pipe.ack(1)
    flight = pipe.fly()
    for answer in (STORED, STORED, UNKNOWN, TOO_LARGE):
        pipe.commits.landed(flight, answer)
    assert pipe.told == ["1"]
    assert pipe.commits.prepare() is None, "what is known to be stored is sent again"


def test_a_good_answer_that_comes_after_its_time_was_over_is_good() -> None:
    pipe = Pipe(2)
    pipe.ack(1)
    flight = pipe.fly()
    pipe.commits.landed(flight, UNKNOWN)
    pipe.commits.landed(flight, STORED)
    assert pipe.told == ["1"]
    assert pipe.commits.prepare() is None


def test_a_commit_that_is_on_its_way_is_said_again_and_nobody_is_told_while_it_may_arrive() -> None:
    pipe = Pipe(3)
    pipe.ack(1)
    first = pipe.fly()
    second = pipe.commits.prepare([0])
    assert second is not None, "what was on its way is forgotten"
    assert second.maps[0].runs == first.maps[0].runs
    pipe.commits.landed(second, STORED)
    assert pipe.told == []
    pipe.commits.landed(first, UNKNOWN)
    assert pipe.commit().runs == first.maps[0].runs
    assert pipe.told == ["1"]


def test_a_caller_that_begins_to_wait_while_an_older_commit_may_arrive_waits_for_that_too() -> None:
    pipe = Pipe(3)
    pipe.ack(1)
    older = pipe.fly()
    pipe.ack(2, wait=False)
    pipe.commits.landed(pipe.fly(), STORED)
    pipe.wait(2, "2")
    assert pipe.told == []
    pipe.commits.landed(older, STORED)
    assert pipe.told == []
    pipe.commit()
    assert sorted(pipe.told) == ["1", "2"]


def test_an_older_commit_of_the_assignment_before_may_arrive_too() -> None:
    pipe = Pipe(2)
    pipe.ack(1, wait=False)
    older = pipe.fly()
    pipe.commits.untrack([0])
    pipe.commits.track(0, CommitMap(0), tag=TAG, partitions=1)
    pipe.ack(0)
    pipe.commits.landed(pipe.fly(), STORED)
    assert pipe.told == []
    pipe.commits.landed(older, STORED)
    pipe.commit()
    assert pipe.told == ["0"]


def test_a_commit_for_other_partitions_goes_on_when_those_asked_for_have_nothing_new() -> None:
    pipe = Pipe(1)
    pipe.commit()
    pipe.ledger.assign(1, CommitMap(0), 0)
    pipe.commits.track(1, CommitMap(0), tag=TAG, partitions=1)
    flight = pipe.fly()
    assert flight.maps.keys() == {1}
    assert pipe.commits.prepare([0]) is None
    assert pipe.commits.in_flight
    pipe.commits.landed(flight, STORED)
    assert pipe.commits.prepare() is None


def test_a_commit_for_some_partitions_does_not_forget_what_was_on_its_way_for_others() -> None:
    pipe = Pipe(1)
    pipe.ledger.assign(1, CommitMap(0), 0)
    pipe.commits.track(1, CommitMap(0), tag=TAG, partitions=1)
    assert pipe.fly().maps.keys() == {0, 1}
    second = pipe.commits.prepare([0])
    assert second is not None
    pipe.commits.landed(second, STORED)
    assert pipe.fly().maps.keys() == {1}, "what was said twice has to be said again when both are answered"


@pytest.mark.parametrize("late", [STORED, UNKNOWN])
def test_after_a_late_answer_to_an_older_commit_the_newest_is_written_once_more(late: Answer) -> None:
    """Nobody knows in which order the two were stored."""
    pipe = Pipe(3)
    pipe.ack(1)
    older = pipe.fly()
    pipe.ack(2)
    newer = pipe.fly()
    pipe.commits.landed(newer, STORED)
    pipe.commits.landed(older, late)
    assert pipe.told == []
    assert pipe.commits.last(0) == newer.maps[0], "what is known to be stored goes back"
    assert pipe.commit().runs == (1, 2)
    assert pipe.told == ["1", "2"]
    assert pipe.commits.prepare() is None


def test_an_answer_to_a_commit_that_was_given_up_tells_nobody_while_the_next_is_on_its_way() -> None:
    """The next one may say less if the limit has sunk meanwhile."""
    pipe = Pipe(2)
    pipe.ack(1)
    older = pipe.fly()
    newer = pipe.commits.prepare([0])
    assert newer is not None
    pipe.commits.landed(older, STORED)
    assert pipe.told == []
    assert pipe.commits.in_flight
    pipe.commits.landed(newer, STORED)
    assert pipe.told == [], "the older one may have come after it"
    pipe.commit()
    assert pipe.told == ["1"]


# --- texts that are too long ----------------------------------------------------------------------------------------


def scattered(messages: int, limit: int = 4095) -> Pipe:
    """Return a pipe with every other message acked, each of which makes a pair of runs."""
    pipe = Pipe(messages, limit=limit)
    pipe.ack(*range(1, messages, 2), wait=False)
    return pipe


def test_a_text_that_is_refused_halves_the_limit_of_texts_and_of_what_is_handed_out() -> None:
    pipe = scattered(200)
    size = len(pipe.commit(TOO_LARGE).encode())
    assert pipe.ledger.capacity.limit == max(size // 2, 64)
    assert len(pipe.commit().encode()) <= pipe.ledger.capacity.limit


def test_only_the_longest_text_of_a_commit_is_taken_to_be_refused() -> None:
    pipe = scattered(200)
    pipe.ledger.assign(1, CommitMap(0), 0)
    pipe.commits.track(1, CommitMap(0), tag=TAG, partitions=1)
    flight = pipe.fly()
    long, short = (len(flight.maps[partition].encode()) for partition in (0, 1))
    assert long // 2 > short
    pipe.commits.landed(flight, {0: TOO_LARGE, 1: TOO_LARGE})
    assert pipe.ledger.capacity.limit == long // 2
    assert pipe.fly().maps.keys() == {0, 1}, "any of them may have been stored, or not"


def test_the_limit_never_rises_again() -> None:
    pipe = scattered(200)
    flight = pipe.fly()
    pipe.commits.landed(flight, TOO_LARGE)
    pipe.commits.landed(flight, TOO_LARGE)
    lower = pipe.ledger.capacity.limit
    pipe.commit(TOO_LARGE)
    lowest = pipe.ledger.capacity.limit
    assert lowest < lower
    pipe.commits.landed(flight, TOO_LARGE)
    assert pipe.ledger.capacity.limit == lowest
    for _ in range(10):
        pipe.commits.renew([0])
        pipe.commit(TOO_LARGE)
    assert pipe.ledger.capacity.limit == 64


def spread(messages: int) -> list[int]:
    """Return offsets at random distances, without 0; their text cannot be deflated much."""
    return [offset for offset in range(1, messages - 1) if random.Random(offset).random() < 0.4]


def test_the_limit_does_not_sink_below_what_was_stored_before() -> None:
    pipe = Pipe(2000)
    offsets = spread(2000)
    pipe.ack(*offsets[:400], wait=False)
    stored = len(pipe.commit().encode())
    pipe.ack(*offsets[400:500], wait=False)
    assert stored < len(pipe.commit(TOO_LARGE).encode()) < 2 * stored
    assert pipe.ledger.capacity.limit == stored


def test_where_the_broker_refuses_what_it_has_stored_before_the_limit_is_halved_all_the_same() -> None:
    pipe = Pipe(1000)
    pipe.ack(*spread(1000)[:200], wait=False)
    pipe.commit()
    pipe.commits.renew([0])
    size = len(pipe.commit(TOO_LARGE).encode())
    assert pipe.ledger.capacity.limit == size // 2


def sunk() -> Pipe:
    """Return a pipe whose limit has sunk to half of what is stored."""
    pipe = Pipe(1000)
    pipe.ack(*spread(1000)[:200], wait=False)
    pipe.commit()
    pipe.commits.renew([0])
    pipe.commit(TOO_LARGE)
    return pipe


def test_promised_acks_are_never_taken_back_where_the_limit_has_sunk() -> None:
    pipe = sunk()
    durable = pipe.commits.last(0)
    assert pipe.commits.prepare() is None, "a shortened map would say less than the stored one"
    pipe.ack(*(offset for offset in range(600) if not durable.done(offset)))
    assert pipe.told == []
    shorter = pipe.commit()
    assert shorter.covers(durable)
    assert len(shorter.encode()) <= pipe.ledger.capacity.limit
    assert len(pipe.told) > 100


def test_a_commit_that_is_asked_for_says_what_is_stored_where_the_limit_lets_it_say_no_more() -> None:
    """Otherwise a consumer that asks whether the group counts on it would get no answer and hand nothing out."""
    pipe = Pipe(1000)
    pipe.ack(*(offset for offset in spread(1000) if offset > 950), wait=False)
    stored = pipe.commit()
    pipe.ledger.capacity.limit = len(stored.encode())
    pipe.ack(*(offset for offset in spread(1000) if offset < 400), wait=False)
    assert pipe.commits.prepare() is None, "nobody has asked"
    pipe.commits.renew([0])
    again = pipe.commit()
    assert (again.base, again.runs, again.sequence) == (stored.base, stored.runs, stored.sequence + 1)
    assert len(again.encode()) <= pipe.ledger.capacity.limit
    assert pipe.commits.prepare() is None


def test_a_commit_that_is_asked_for_is_sent_once_though_all_it_can_say_has_become_too_large() -> None:
    """As when a broker with a lower limit coordinates the group: its refusal shows that it counts on the sender."""
    pipe = sunk()
    durable, limit = pipe.commits.last(0), pipe.ledger.capacity.limit
    assert len(durable.encode()) > limit
    for _ in range(2):
        assert pipe.commits.prepare() is None, "nobody has asked"
        pipe.commits.renew([0])
        again = pipe.commit(TOO_LARGE)
        assert (again.base, again.runs) == (durable.base, durable.runs), "nothing is taken back"
        assert pipe.ledger.capacity.limit == limit
    assert pipe.commits.prepare() is None


def test_nobody_waits_for_counts_that_there_is_no_room_for() -> None:
    pipe = sunk()
    pipe.count()
    pipe.wait(0, "done")
    assert pipe.told == []
    assert pipe.commits.prepare() is None
    assert pipe.told == ["counted"], "the holder of the message at the base would never get to work on it"
    assert pipe.commits.urgent


def test_an_ack_that_the_text_has_no_room_for_is_told_when_there_is_room() -> None:
    pipe = Pipe(1000)
    offsets = set(spread(1000))
    pipe.ack(*offsets)
    pipe.ledger.capacity.limit = 200
    said = pipe.commit()
    assert said.runs
    told = set(pipe.told)
    assert told == {str(offset) for offset in offsets if said.done(offset)} != {str(offset) for offset in offsets}
    pipe.ack(*(set(range(1000)) - offsets), wait=False)
    assert pipe.commit().base == 1000
    assert told | set(pipe.told) == {str(offset) for offset in offsets}


# --- waiters --------------------------------------------------------------------------------------------------------


def test_a_caller_that_waits_for_a_durable_ack_learns_it_at_once() -> None:
    pipe = Pipe(2)
    pipe.ack(0, wait=False)
    pipe.commit()
    assert not pipe.commits.urgent
    pipe.wait(0, "late")
    assert pipe.told == ["late"]
    assert not pipe.commits.urgent


def test_a_caller_that_waits_for_a_message_in_work_learns_when_it_is_done_and_stored() -> None:
    pipe = Pipe(2)
    pipe.wait(1, "patient")
    pipe.commit()
    assert pipe.told == []
    assert pipe.commits.prepare() is None
    pipe.ack(1, wait=False)
    assert pipe.told == []
    pipe.commit()
    assert pipe.told == ["patient"]


def test_an_ack_of_a_superseded_message_is_durable_with_the_next_commit() -> None:
    pipe = Pipe(2)
    pipe.queue.send(("1", "newer"))
    pipe.ack(1)
    assert pipe.told == []
    assert pipe.commit().base == 0, "offset 0 is not done"
    assert pipe.told == ["1"]


def test_a_caller_that_waits_for_a_state_learns_it_from_the_first_commit_that_leaves_after() -> None:
    pipe = Pipe(2, counted=True)
    flight = pipe.fly()
    pipe.ledger.release(pipe.items[1])
    again = pipe.ledger.acquire()
    assert again is not None
    pipe.count()
    pipe.commits.landed(flight, STORED)
    assert pipe.told == [], "that commit left before"
    assert pipe.commit().counts == {0: 1, 1: 2}
    assert pipe.told == ["counted"]


def test_a_caller_that_waits_for_a_state_that_is_stored_already_learns_it_without_a_commit() -> None:
    pipe = Pipe(1, counted=True)
    pipe.commit()
    pipe.count()
    assert pipe.told == []
    assert pipe.commits.prepare() is None
    assert pipe.told == ["counted"]


def test_a_caller_that_waits_for_a_state_learns_nothing_from_a_commit_that_failed() -> None:
    pipe = Pipe(1, counted=True)
    pipe.count()
    pipe.commit(UNKNOWN)
    assert pipe.told == []
    pipe.commit()
    assert pipe.told == ["counted"]


def test_a_state_is_said_again_when_another_one_may_have_been_stored_since() -> None:
    """Counts are taken back if nobody got the message, so the same state can occur twice."""
    pipe = Pipe(1, counted=True)
    assert pipe.commit().counts == {0: 1}
    [item] = pipe.items
    item.reserved = True
    pipe.ledger.release(item)
    assert pipe.commit(UNKNOWN).counts == {}
    assert pipe.ledger.acquire() is not None
    pipe.count()
    assert pipe.told == []
    assert pipe.commit().counts == {0: 1}
    assert pipe.told == ["counted"]


def test_a_count_that_is_taken_back_while_its_commit_is_on_its_way_is_taken_back_there_too() -> None:
    """The restored state is known to be stored, but the commit in flight says otherwise, and would be the last."""
    loaded = CommitMap(0, topic_tag=TAG, partitions=1, delivered=1)
    queue = Queue(("a", "a"), loaded=loaded, count_deliveries=True)
    commits: Commits[str] = Commits(queue.ledger)
    commits.track(0, loaded, tag=TAG, partitions=1)
    assert queue.ledger.reserve() is not None
    counting = commits.prepare()
    assert counting is not None
    assert counting.maps[0].counts == {0: 1}
    queue.ledger.withhold([0])
    last = commits.prepare([0])
    assert last is not None
    assert last.maps[0].counts == {}


# --- partitions that go ---------------------------------------------------------------------------------------------


def test_a_caller_that_waits_when_a_partition_goes_has_waited_without_success() -> None:
    pipe = Pipe(3)
    pipe.ack(0, 1)
    flight = pipe.fly()
    pipe.ledger.withhold([0])
    pipe.ack(2)
    pipe.count()
    final = pipe.commits.prepare([0])
    assert final is not None
    assert final.maps[0].base == 3
    pipe.commits.landed(final, UNKNOWN)
    pipe.ledger.revoke([0])
    assert pipe.commits.untrack([0]) == ["0", "1", "2"]
    assert pipe.told == ["counted"]
    pipe.commits.landed(flight, STORED)
    assert pipe.told == []
    assert pipe.commits.prepare() is None


def test_the_answer_to_the_last_commit_of_a_partition_tells_those_who_wait() -> None:
    pipe = Pipe(2)
    pipe.ack(0, 1)
    pipe.commits.landed(pipe.fly(), STORED)
    pipe.ledger.revoke([0])
    assert pipe.told == ["0", "1"]
    assert pipe.commits.untrack([0]) == []


def test_an_answer_from_before_a_partition_went_says_nothing_about_its_next_life() -> None:
    pipe = Pipe(2)
    pipe.ack(0)
    flight = pipe.fly()
    pipe.ledger.revoke([0])
    pipe.commits.untrack([0])
    loaded = CommitMap(0, sequence=5)
    pipe.ledger.assign(0, loaded, 0)
    pipe.commits.track(0, loaded, tag=TAG, partitions=1)
    pipe.wait(0, "new life")
    pipe.commits.landed(flight, STORED)
    assert pipe.told == []
    assert pipe.commits.last(0) == loaded
    assert pipe.commit().sequence == 6


# --- other writers --------------------------------------------------------------------------------------------------


def settled() -> Pipe:
    pipe = Pipe(4)
    for offset in (1, 2, 3):
        pipe.ack(offset, wait=False)
        pipe.commit()
    assert pipe.commits.prepare() is None
    return pipe


def test_a_written_commit_that_is_found_is_fine() -> None:
    pipe = settled()
    assert pipe.commits.found(0, pipe.commits.last(0))
    assert pipe.commits.found(7, CommitMap(0)), "not ours to judge"
    assert pipe.commits.prepare() is None


@pytest.mark.parametrize(
    "stored",
    [
        CommitMap(0, (2, 1), TAG, 1, 2, 4),
        CommitMap(0, sequence=0),
        CommitMap(0, (2, 1), TAG, 1, 3, 4),
        CommitMap(0, (2, 1), TAG, 1, 9, 4),
        CommitMap(4, sequence=9),
    ],
    ids=["an older one", "nothing", "the same number and less", "a higher number and less", "a higher number"],
)
def test_a_commit_overwritten_by_something_else_is_mended(stored: CommitMap) -> None:
    pipe = settled()
    durable = pipe.commits.last(0)
    assert not pipe.commits.found(0, stored)
    assert pipe.commits.urgent
    mended = pipe.commit()
    assert mended.covers(durable)
    assert mended.sequence > max(durable.sequence, stored.sequence)
    assert pipe.commits.found(0, mended)
    assert not pipe.commits.urgent
    assert pipe.commits.prepare() is None


def test_after_the_last_number_comes_the_first_and_all_is_durable_as_ever() -> None:
    last = CommitMap(0, sequence=(1 << 62) - 1)
    pipe = Pipe(3, loaded=last)
    pipe.ack(0)
    flight = pipe.fly()
    pipe.commits.doubt()
    assert not pipe.commits.found(0, last), "it is from before the wrap, and so is nothing that was written since"
    pipe.commits.landed(flight, STORED)
    again = pipe.commit()
    assert pipe.commits.found(0, again)
    assert pipe.told == ["0"]
    pipe.ack(1)
    for said in (again, pipe.commit()):
        assert CommitMap.decode(said.base, said.encode()) == said
    assert again.sequence < 10
    assert pipe.commits.found(0, pipe.commits.last(0))
    assert pipe.told == ["1"]
    assert not pipe.commits.found(0, last), "somebody has written it once more"
    mended = pipe.commit()
    assert pipe.commits.found(0, mended)


def test_a_foreign_commit_found_while_one_was_on_its_way_is_mended_by_the_next_one() -> None:
    pipe = settled()
    pipe.commits.renew([0])
    flight = pipe.fly()
    assert not pipe.commits.found(0, CommitMap(0))
    pipe.commits.landed(flight, STORED)
    assert pipe.fly(), "it may have arrived before what was found"


def test_g11_where_a_commit_may_arrive_late_nothing_is_durable_before_a_look_has_found_it() -> None:
    pipe = Pipe(3)
    pipe.ack(0)
    flight = pipe.fly()
    pipe.commits.doubt()
    pipe.commits.landed(flight, STORED)
    assert pipe.told == []
    pipe.ack(1)
    second = pipe.commit()
    assert pipe.told == []
    assert pipe.commits.prepare() is None, "it is for a look to say so, and for no further commit"
    assert pipe.commits.found(0, second)
    assert pipe.told == ["0", "1"]
    pipe.ack(2)
    pipe.commit()
    assert pipe.told == ["2"]


def test_g11_a_commit_that_has_arrived_late_is_written_over_before_more_is_durable() -> None:
    pipe = Pipe(3)
    pipe.ack(0)
    late = pipe.commit()
    assert pipe.told == ["0"]
    pipe.commits.doubt()
    pipe.ack(1)
    pipe.commit()
    assert not pipe.commits.found(0, late)
    assert pipe.commits.urgent
    mended = pipe.commit()
    assert mended.covers(CommitMap(2))
    assert mended.sequence > late.sequence
    assert pipe.told == []
    assert pipe.commits.found(0, mended)
    assert pipe.told == ["1"]


def test_g11_a_look_while_a_commit_is_on_its_way_does_not_say_that_nothing_is_written_over_that() -> None:
    pipe = Pipe(2)
    pipe.ack(0)
    late = pipe.commit()
    assert pipe.told == ["0"]
    pipe.ack(1)
    flight = pipe.fly()
    pipe.commits.doubt()
    assert pipe.commits.found(0, late), "it may be from before"
    pipe.commits.landed(flight, STORED)
    assert pipe.told == []
    assert not pipe.commits.found(0, late), "it is over the one that was stored"


def test_a_count_that_waits_is_told_by_the_look_too() -> None:
    pipe = Pipe(2, counted=True)
    pipe.commit()
    pipe.commits.doubt()
    pipe.count()
    assert pipe.commits.prepare() is None
    assert pipe.told == []
    assert pipe.commits.found(0, pipe.commits.last(0))
    assert pipe.commits.prepare() is None
    assert pipe.told == ["counted"]


def test_a_commit_whose_answer_was_lost_is_ours_when_it_is_found() -> None:
    pipe = settled()
    pipe.ack(0, wait=False)
    assert pipe.commits.found(0, pipe.commit(UNKNOWN))


def test_a_renewal_is_sent_until_it_is_stored() -> None:
    pipe = settled()
    pipe.commits.renew([0])
    pipe.commit(UNKNOWN)
    pipe.commit()
    assert pipe.commits.prepare() is None


# --- transactions ---------------------------------------------------------------------------------------------------


def test_a_transaction_says_what_leaves_and_is_told_of_when_it_has_committed() -> None:
    pipe = Pipe(3)
    left = pipe.items[1:]
    for item in left:
        pipe.ledger.leave(item)
        pipe.wait(item.offset, str(item.offset))
    flight = pipe.commits.prepare([0], left)
    assert flight is not None
    assert flight.maps[0].runs == (1, 2)
    pipe.commits.landed(flight, STORED)
    for item in left:
        pipe.ledger.commit(item)
    assert pipe.told == ["1", "2"]
    assert pipe.commits.prepare() is None


def test_a_transaction_says_what_left_with_it_though_nothing_else_has_changed_since_the_last_commit() -> None:
    pipe = Pipe(3)
    pipe.commit()
    assert pipe.commits.prepare() is None
    pipe.ledger.leave(pipe.items[1])
    flight = pipe.commits.prepare([0], [pipe.items[1]])
    assert flight is not None
    assert flight.maps[0].runs == (1, 1)


def test_a_map_that_left_while_another_was_on_its_way_is_sent_once_more() -> None:
    pipe = Pipe(3)
    pipe.ack(1, wait=False)
    first = pipe.fly()
    second = pipe.fly()
    pipe.commits.landed(first, STORED)
    pipe.commits.landed(second, STORED)
    assert pipe.commit().runs == second.maps[0].runs
    assert pipe.commits.prepare() is None


def test_acks_of_a_failed_transaction_are_not_in_the_next_commit() -> None:
    pipe = Pipe(3)
    item = pipe.items[1]
    pipe.ledger.leave(item)
    flight = pipe.commits.prepare([0], [item])
    assert flight is not None
    pipe.commits.landed(flight, UNKNOWN)
    pipe.ledger.give_back(item)
    assert pipe.commit().runs == ()


def test_a_plain_commit_takes_nothing_back_of_a_transaction_that_the_ledger_has_not_heard_of() -> None:
    pipe = Pipe(3)
    item = pipe.items[1]
    pipe.ledger.leave(item)
    flight = pipe.commits.prepare([0], [item])
    assert flight is not None
    pipe.commits.landed(flight, STORED)
    pipe.commits.renew([0])
    assert pipe.commit().runs == (1, 1), "what is stored is said again"
    pipe.ledger.commit(item)
    assert pipe.commits.prepare() is None


def test_a_transaction_has_nothing_to_say_of_what_was_superseded_meanwhile() -> None:
    pipe = Pipe(1)
    pipe.ledger.leave(pipe.items[0])
    pipe.queue.send(("0", "newer"))
    pipe.commit()
    assert pipe.commits.prepare([0], pipe.items) is None
    assert pipe.commits.last(0).done(0)


# --- any order of events --------------------------------------------------------------------------------------------


class Broker:
    """A broker that stores commits in order of arrival. Some never arrive, and answers come at any time."""

    def __init__(self, pipe: Pipe, limits: list[int]) -> None:
        self.pipe = pipe
        self.commits = pipe.commits
        self.limits = limits
        self.stored = CommitMap(0)
        self.sent: list[Flight[str]] = []
        self.again: list[Flight[str]] = []
        self.answers: list[tuple[Flight[str], Answer]] = []
        self.waiting: dict[str, int] = {}
        self.promised: set[int] = set()

    def send(self) -> None:
        """Send a commit unless one is on its way."""
        if not self.commits.in_flight:
            self.send_anyway()

    def send_anyway(self) -> None:
        flight = self.commits.prepare()
        if flight is not None:
            self.sent.append(flight)

    def receive(self, *, lost: bool = False) -> None:
        """Receive a request; its answer may get lost."""
        if self.sent:
            flight = self.sent.pop(0)
            small = len(flight.maps[0].encode(1 << 30)) <= self.limits[0]
            if small:
                self.stored = flight.maps[0]
            if not lost:
                self.answers.append((flight, STORED if small else TOO_LARGE))

    def lose(self) -> None:
        """Lose a request."""
        if self.sent:
            self.sent.pop(0)

    def answer(self, which: int, *, twice: bool = False) -> None:
        if self.answers:
            self.commits.landed(*self.answers[which % len(self.answers)])
            if not twice:
                del self.answers[which % len(self.answers)]

    def give_up(self) -> None:
        """Give up on all answers. The client gave up long before, and sends nothing again."""
        for flight in list(self.commits._flights):
            self.commits.landed(flight, UNKNOWN)
        self.sent = [flight for flight in self.sent if flight not in self.again]

    def send_again(self, which: int) -> None:
        """Refuse a request for now: the client sends it again, after the others."""
        if self.sent and self.sent[which % len(self.sent)] in self.commits._flights:
            self.again.append(self.sent.pop(which % len(self.sent)))
            self.sent.append(self.again[-1])

    def check(self) -> None:
        for waiter in self.pipe.told:
            offset = self.waiting.pop(waiter)
            assert self.stored.done(offset), "notified too early"
            self.promised.add(offset)
        durable = self.commits.last(0)
        assert all(map(self.stored.done, self.promised)), "what was promised is taken back"
        part = self.commits._partitions[0]
        if not self.commits.in_flight and part._stored >= part._wanted:  # nothing older can arrive, or has
            assert self.stored.covers(durable), "what is known to be stored is not"
            assert not [waiter for waiter, at in self.waiting.items() if durable.done(at)], "not notified though it is"


OFTEN = ["ack", "ack", "send", "receive", "answer"]
EVENTS = st.sampled_from(
    [*OFTEN, *OFTEN, "again", "again and later", "lose", "mute", "give up", "hurry", "sink", "renew", "look"],
)


@given(st.lists(st.tuples(EVENTS, st.integers(0, 39)), min_size=50, max_size=80), st.integers(60, 90))
@settings(max_examples=examples(200))
def test_no_caller_learns_too_early_or_never_whatever_happens_to_commits_and_answers(
    events: list[tuple[str, int]], sunk_to: int
) -> None:
    pipe = Pipe(40)
    broker = Broker(pipe, limits=[4095])
    for event, number in events:
        match event:
            case "ack":
                if pipe.items[number].state is MessageState.ACQUIRED:
                    broker.waiting[str(number)] = number
                    pipe.ack(number)
            case "send":
                broker.send()
            case "hurry":
                broker.send_anyway()
            case "receive":
                broker.receive()
            case "mute":
                broker.receive(lost=True)
            case "lose":
                broker.lose()
            case "answer":
                broker.answer(number)
            case "again":
                broker.answer(number, twice=True)
            case "give up":
                broker.give_up()
            case "again and later":
                broker.send_again(number)
            case "sink":
                broker.limits[0] = sunk_to
            case "renew":
                pipe.commits.renew([0])
            case "look":
                pipe.commits.found(0, broker.stored)
        broker.check()
    for item in pipe.items:
        if item.state is MessageState.ACQUIRED:
            broker.waiting[str(item.offset)] = item.offset
            pipe.ack(item.offset)
    while broker.sent:
        broker.receive()
    for _ in range(20):
        broker.give_up()
        broker.send()
        broker.receive()
        broker.answer(-1)
        broker.check()
    assert not broker.waiting, "told never"
    assert pipe.commits.last(0).base == 40
    assert broker.stored == pipe.commits.last(0)
