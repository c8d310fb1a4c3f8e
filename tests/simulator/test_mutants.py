"""Mutants of the consume protocol, each caught by the simulator through the invariant it breaks."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from lvq_kafka.consuming.dead_letters import DeadLetters
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.commit_map.map_capacity import MapCapacity
from lvq_kafka.core.consumer import consumer_core
from lvq_kafka.core.consumer.commits import Answer, Commits, Count, Flight
from lvq_kafka.core.consumer.consumer_core import ConsumerCore
from lvq_kafka.core.consumer.consumer_transaction import ConsumerTransaction
from lvq_kafka.core.consumer.hand_out import ConsumerLimits, HandOut
from lvq_kafka.core.consumer.lease import Lease
from lvq_kafka.core.consumer.partition_commits import PartitionCommits
from lvq_kafka.core.consumer.past_assignments import Generations, Promises
from lvq_kafka.core.ledger import expiring_items as expiring_module
from lvq_kafka.core.ledger import ledger as ledger_module
from lvq_kafka.core.ledger import ring as eviction_order
from lvq_kafka.core.ledger.assignment import Assignment
from lvq_kafka.core.ledger.expiring_items import Expiring
from lvq_kafka.core.ledger.ledger import Item, Ledger
from lvq_kafka.core.ledger.partition_ledger import PartitionLedger
from lvq_kafka.core.ledger.ring import WAITS, ByOffset, ByRank, EvictionOrder, Ring, RingPartition
from lvq_kafka.core.ledger.scheduled_items import ScheduledItems
from lvq_kafka.core.ledger.timed_partition import TimedPartition
from lvq_kafka.core.queue.message_groups import GroupMode, Groups
from lvq_kafka.core.queue.ranking import Rank, Ranking
from lvq_kafka.core.timing.due_times import DueTimes
from lvq_kafka.core.timing.earlier_terms import EarlierTerms
from lvq_kafka.core.timing.expiry_queue import BUCKET, ExpiryQueue
from lvq_kafka.core.timing.expiry_times import ExpiryTimes
from lvq_kafka.core.timing.log_time import LogTime
from lvq_kafka.core.timing.time_rule import TimeRule
from lvq_kafka.core.timing.ttl import Ttl
from lvq_kafka.core.waiting.bounded_hand_out import BoundedHandOut
from lvq_kafka.core.waiting.grouped_queue import GroupedQueue
from lvq_kafka.core.waiting.lifecycle import TRANSITIONS, MessageEvent, MessageState
from lvq_kafka.core.waiting.partition_room import PartitionRoom
from lvq_kafka.core.waiting.pending import PendingList, PlacedPendingList
from lvq_kafka.core.waiting.ranked_queue import ByLevel, ranked_items
from lvq_kafka.core.waiting.ready_queue import TRIED_OFTEN, InTurns
from lvq_kafka.core.waiting.session_pins import Offers, SessionPins, WaitingGroup
from lvq_kafka.errors import AlreadySettled, LockLost
from lvq_kafka.managing import reclaiming
from tests.effort import examples
from tests.simulator.browser import Browser
from tests.simulator.group import Group
from tests.simulator.log import Log
from tests.simulator.member import Member
from tests.simulator.proof import Proof, Violation
from tests.simulator.scene import FAR_AHEAD, Setting
from tests.simulator.walk import any_setting, walk
from tests.simulator.world import World

_WORLDS = 2000
_STEPS = 250
_MORE_STEPS = 1000

_NO_CLEANING = frozenset({"compact", "reclaim"})
_CRASHES_ONLY = _NO_CLEANING | {
    "stop", "browse", "letter", "transact", "evict", "leave", "look", "stale", "rebalance", "expire", "tick"
}  # fmt: skip
_NO_TROUBLE = _NO_CLEANING | {
    "crash", "stop", "evict", "leave", "browse", "time_out", "letter", "expire", "stale", "look", "tick"
}  # fmt: skip

Patch = pytest.MonkeyPatch
Focus = Callable[[Setting], Setting]


def caught(
    invariant: str, focus: Focus = lambda setting: setting, kind: type[World] = World, steps: int = _STEPS
) -> bool:
    """Return whether the simulator finds this invariant broken. The worlds are the same every time.

    Raises:
        Exception: it does not, and the core failed in another way. The mutant may no longer match the code.
    """
    failure: Exception | None = None
    for seed in range(_WORLDS):
        random = Random(seed)
        world = kind(focus(_without_ring(any_setting(random.choice))))
        try:
            walk(world, random, steps)
        except Violation as violation:
            if violation.invariant == invariant:
                return True
        except Exception as error:  # noqa: BLE001  # a broken core may fail in another way first
            failure = error
    if failure is not None:
        raise failure
    return False


def _without_ring(setting: Setting) -> Setting:
    """Leave evictions to the mutants of rings: messages that are evicted are in nobody's work.

    And alterations to those of altered queues.
    """
    return replace(setting, options=replace(setting.options, ring=None, earlier=()))


def anywhere(setting: Setting) -> Setting:
    return setting


def where_only_the_map_tells(setting: Setting) -> Setting:
    options = replace(setting.options, ends_known=False, text_limit=4095, dead_letters=False, limits=ConsumerLimits(12))
    return replace(setting, partitions=1, queues=1, keys=2, gap=0, fenced=True, never=_CRASHES_ONLY, options=options)


def counting(setting: Setting) -> Setting:
    limits = replace(setting.options.limits, durable_counts=True)
    options = replace(setting.options, limits=limits, ahead=True, text_limit=4095, dead_letters=True)
    return replace(setting, keys=7, gap=0, broker_limits=(4096,), fenced=True, options=options)


def counting_each(setting: Setting) -> Setting:
    setting = counting(setting)
    return replace(setting, options=replace(setting.options, ahead=False))


def where_limits_sink(setting: Setting) -> Setting:
    limits = ConsumerLimits(12, durable_counts=setting.options.limits.durable_counts)
    options = replace(setting.options, text_limit=4095, partition_count=(1 << 31) - 1, limits=limits)
    return replace(
        setting,
        keys=7,
        queues=1,
        gap=1 << 50,
        sequence=1 << 60,
        broker_limits=(4096, 64, 96),
        fenced=True,
        never=_NO_CLEANING,
        options=options,
    )


def where_texts_are_short(setting: Setting) -> Setting:
    limits = ConsumerLimits(12, durable_counts=setting.options.limits.durable_counts)
    options = replace(
        setting.options,
        order="tail",
        text_limit=96,
        partition_count=(1 << 31) - 1,
        limits=limits,
        dead_letters=False,
        ttl=None,
        expiry_topic=False,
    )
    return replace(
        setting,
        partitions=1,
        queues=1,
        keys=7,
        gap=1 << 50,
        sequence=1 << 60,
        broker_limits=(4096,),
        fenced=True,
        never=_NO_TROUBLE,
        options=options,
    )


def undisturbed(setting: Setting) -> Setting:
    options = replace(setting.options, text_limit=4095, limits=ConsumerLimits(setting.options.limits.max_in_work))
    return replace(
        setting,
        partitions=1,
        queues=1,
        keys=7,
        gap=0,
        broker_limits=(4096,),
        fenced=True,
        never=_NO_TROUBLE,
        options=options,
    )


def moving(setting: Setting) -> Setting:
    """Partitions move between members that only acknowledge."""
    setting = undisturbed(setting)
    options = replace(setting.options, ttl=None, max_delay=None, dead_letters=False)
    return replace(setting, partitions=3, never=setting.never | {"transact", "decide"}, options=options)


def expiring(setting: Setting) -> Setting:
    return replace(setting, options=replace(setting.options, ttl=Ttl(default=4), expiry_topic=False))


def expiring_elsewhere(setting: Setting) -> Setting:
    return replace(setting, options=replace(setting.options, ttl=Ttl(default=4), expiry_topic=True), fenced=True)


def expiring_ahead(setting: Setting) -> Setting:
    return replace(setting, options=replace(setting.options, ttl=Ttl(default=4), ahead=True))


def scheduling(setting: Setting) -> Setting:
    return replace(setting, options=replace(setting.options, ttl=None, max_delay=4.0))


def scheduling_apart(setting: Setting) -> Setting:
    """Messages are taken one by one, and nothing takes messages away."""
    limits = ConsumerLimits(setting.options.limits.max_in_work)
    options = replace(setting.options, ttl=None, max_delay=4.0, ahead=False, limits=limits, text_limit=4095)
    return replace(setting, gap=0, broker_limits=(4096,), fenced=True, options=options)


def ringed(setting: Setting) -> Setting:
    options = replace(setting.options, ring=3, text_limit=4095, partition_count=1, max_delay=None)
    return replace(setting, keys=7, gap=0, broker_limits=(4096,), fenced=True, options=options)


def ringed_without_time(setting: Setting) -> Setting:
    setting = ringed(setting)
    return replace(setting, options=replace(setting.options, ttl=None, ring=2))


def ringed_by_rank(setting: Setting) -> Setting:
    setting = ringed_without_time(setting)
    return replace(setting, options=replace(setting.options, order="tail", ranked=True, ring=3))


def altered(setting: Setting) -> Setting:
    """The queue gets a TTL, and longer delays, while messages without them wait."""
    earlier = (EarlierTerms(until=4000, max_delay=2.0),)
    options = replace(setting.options, ttl=Ttl(default=2), max_delay=6.0, earlier=earlier, expiry_topic=False)
    return replace(setting, options=options)


def ringed_expiring_elsewhere(setting: Setting) -> Setting:
    setting = ringed(setting)
    return replace(setting, options=replace(setting.options, ttl=Ttl(default=4), expiry_topic=True))


def ringed_scheduling(setting: Setting) -> Setting:
    setting = ringed(setting)
    return replace(setting, options=replace(setting.options, ttl=None, max_delay=4.0))


def by_rank(setting: Setting) -> Setting:
    options = replace(setting.options, order="tail", ranked=True, text_limit=4095, limits=ConsumerLimits(3))
    return replace(setting, keys=7, gap=0, broker_limits=(4096,), options=options)


def far_ahead_by_rank(setting: Setting) -> Setting:
    """Some messages do not come due within the history, and fill the texts."""
    setting = where_texts_are_short(by_rank(setting))
    return replace(setting, options=replace(setting.options, max_delay=FAR_AHEAD))


class MovesInTransactions(World):
    """A world where partitions move while transactions commit."""

    def act(self, action: str, who: int = 0, how: int = 0) -> None:
        super().act(action, who, how)
        if any(member.work is not None and member.work.committing for member in self.members):
            for step in ("join", 0, 0), ("rebalance", 0, 1), ("heartbeat", 0, 1), ("give_up", 0, 1), ("deliver", 0, 5):
                super().act(*step)


class MovesWhileRefused(World):
    """A world where partitions move and transactions continue while the client still retries a refused commit."""

    def act(self, action: str, who: int = 0, how: int = 0) -> None:
        super().act(action, who, how)
        if any(member.connection.refused for member in self.members):
            for step in (
                *(("settle", 0, 2), ("join", 0, 0), ("rebalance", 0, 1), ("heartbeat", 0, 1)),
                *(("give_up", 0, 0), ("deliver", 0, 5), ("give_up", 0, 0), ("answer", 0, 0)),
                *(("settle", 0, 6), ("transact", 0, 3)),
            ):
                super().act(*step)


class MovesUnanswered(World):
    """A world where partitions move while a commit is in flight."""

    def act(self, action: str, who: int = 0, how: int = 0) -> None:
        super().act(action, who, how)
        if any(member.commits.in_flight and member.ahead for member in self.members):
            for step in ("deliver", 0, 5), ("join", 0, 0), ("rebalance", 0, 1), ("heartbeat", 0, 1), ("give_up", 0, 1):
                super().act(*step)


class AcksWhileMoving(World):
    """A world where partitions move while messages are held, and some are acked just before they have gone."""

    def act(self, action: str, who: int = 0, how: int = 0) -> None:
        super().act(action, who, how)
        if any(len(member.held) > 1 for member in self.members):
            for step in (
                *(("settle", 0, 2), ("join", 0, 0), ("rebalance", 0, 1), ("heartbeat", 0, 1), ("give_up", 0, 1)),
                *(("settle", who, 2), ("settle", who + 1, 2), ("deliver", 0, 5), ("answer", 0, 0)),
            ):
                super().act(*step)


class TransactsUnanswered(World):
    """A world where transactions continue after a commit with an unknown outcome."""

    def act(self, action: str, who: int = 0, how: int = 0) -> None:
        super().act(action, who, how)
        if any(member.work is not None and member.work.next for member in self.members):
            for step in (
                *(("settle", 0, 1), ("time_out", 0, 0), ("commit", 0, 0), ("time_out", 0, 0)),
                *(("transact", 0, 3), ("transact", 0, 3), ("deliver", 0, 5)),
            ):
                super().act(*step)


@pytest.mark.parametrize(
    ("focus", "kind", "steps"),
    [
        (anywhere, World, _STEPS),
        (anywhere, MovesInTransactions, _STEPS),
        (anywhere, MovesWhileRefused, _STEPS),
        (anywhere, TransactsUnanswered, _STEPS),
        (counting, MovesUnanswered, _STEPS),
        (counting_each, World, _STEPS),
        (where_only_the_map_tells, World, _MORE_STEPS),
        (undisturbed, World, _STEPS),
        (moving, AcksWhileMoving, _STEPS),
        (where_limits_sink, World, _STEPS),
        (where_texts_are_short, World, _STEPS),
        (far_ahead_by_rank, World, _STEPS),
        (expiring, World, _STEPS),
        (expiring_elsewhere, World, _STEPS),
        (expiring_ahead, World, _STEPS),
        (altered, World, _STEPS),
        (ringed, World, _STEPS),
        (ringed_by_rank, World, _STEPS),
        (ringed_expiring_elsewhere, World, _STEPS),
        (ringed_scheduling, World, _STEPS),
    ],
)
def test_the_protocol_as_it_is_breaks_nothing_in_worlds_of_the_mutants(
    focus: Focus, kind: type[World], steps: int
) -> None:
    for seed in range(examples(25_000) // steps):
        random = Random(seed)
        walk(kind(focus(_without_ring(any_setting(random.choice)))), random, steps)


# --- claims of commits ------------------------------------------------------------------------------------------------


def _claiming(patch: Patch, change: Callable[[PartitionLedger, CommitMap], CommitMap]) -> None:
    claim = PartitionLedger.claim
    patch.setattr(PartitionLedger, "claim", lambda self, leaving: change(self, claim(self, leaving)))


def test_i1_a_commit_of_the_seen_position_is_caught(monkeypatch: Patch) -> None:
    _claiming(monkeypatch, lambda part, claim: CommitMap(part.position))
    assert caught("I1")


def test_i1_a_claim_that_marks_gaps_beyond_what_was_read_is_caught(monkeypatch: Patch) -> None:
    def further(part: PartitionLedger, claim: CommitMap) -> CommitMap:
        return replace(claim, runs=(*claim.runs[:-1], claim.runs[-1] + 1)) if claim.runs else claim

    _claiming(monkeypatch, further)
    assert caught("I1")


def test_i1_a_commit_of_the_acks_of_an_open_transaction_is_caught(monkeypatch: Patch) -> None:
    claim = PartitionLedger.claim

    def mutant(self: PartitionLedger, leaving: Collection[Item]) -> CommitMap:
        return claim(self, [item for item in self.held.values() if item.state is MessageState.LEAVING])

    monkeypatch.setattr(PartitionLedger, "claim", mutant)
    assert caught("I1")


def test_i1_a_base_that_goes_by_the_order_of_a_dict_is_caught(monkeypatch: Patch) -> None:
    def replaced(self: PendingList, item: Item, twin: Item) -> None:
        """Move a released message to the end, like a key that is put into a dict again."""
        self.remove(item, acked=False)
        self.append(twin)

    monkeypatch.setattr(PendingList, "replace", replaced)
    assert caught("I1")


def test_i1_a_dead_letter_that_counts_as_done_before_it_is_stored_is_caught(monkeypatch: Patch) -> None:
    post = DeadLetters._post

    def mutant(self: DeadLetters, letter: Any) -> None:
        post(self, letter)
        self._bury(letter.item, letter.reason)

    monkeypatch.setattr(DeadLetters, "_post", mutant)
    assert caught("I1")


def test_i9_maps_that_are_never_shortened_are_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(CommitMap, "shortened", lambda self, limit, **_: self)
    assert caught("I9")


def test_i9_maps_that_are_shortened_without_need_are_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(CommitMap, "shortened", lambda self, limit, **_: replace(self, runs=self.runs[:-2]))
    assert caught("I9")


def test_i9_a_worst_case_that_is_too_short_is_caught(monkeypatch: Patch) -> None:
    fits = MapCapacity.fits
    monkeypatch.setattr(
        MapCapacity, "fits", lambda self, pairs, span, *counts: fits(self, pairs // 2, span.bit_length(), *counts)
    )
    assert caught("I9", where_texts_are_short)


def test_i17_a_hand_out_that_waits_for_room_is_caught(monkeypatch: Patch) -> None:
    reserve = Ledger.reserve

    def mutant(self: Ledger, session: SessionPins | None = None) -> Item | None:
        before, self.bounded = self.bounded, True
        try:
            return reserve(self, session)
        finally:
            self.bounded = before

    monkeypatch.setattr(Ledger, "reserve", mutant)
    assert caught("I17")


def test_i24_the_worst_rank_first_is_caught(monkeypatch: Patch) -> None:
    def mutant(self: ByLevel[Item]) -> Item | None:
        lines = [self._lines[rank] for rank in reversed(self._used)]
        return next((item for line in lines if (item := line.pop()) is not None), None)

    monkeypatch.setattr(ByLevel, "pop", mutant)
    assert caught("I24", by_rank)


def test_i24_a_returned_message_that_loses_its_rank_is_caught(monkeypatch: Patch) -> None:
    again = Item.again

    def mutant(self: Item) -> Item:
        twin = again(self)
        twin.rank = 0
        return twin

    monkeypatch.setattr(Item, "again", mutant)
    assert caught("I24", by_rank)


def test_i24_a_newer_value_with_the_rank_of_the_one_it_replaces_is_caught(monkeypatch: Patch) -> None:
    ranks: dict[bytes | int, Rank] = {}

    def mutant(ranking: Ranking, kind: type[Item]) -> Callable[..., Item]:
        make = ranked_items(ranking, kind)

        def item_of(*fields: Any) -> Item:
            item = make(*fields)
            item.rank = ranks.setdefault(item.lane, item.rank)
            return item

        return item_of

    monkeypatch.setattr(ledger_module, "ranked_items", mutant)
    assert caught("I24", by_rank)


def test_i17_a_queue_by_rank_that_waits_for_what_is_not_due_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(BoundedHandOut, "_let_go", lambda self, partition: False)
    monkeypatch.setattr(BoundedHandOut, "_pop_without_room", lambda self, groups, session: None)
    assert caught("I17", far_ahead_by_rank)


def test_i17_a_queue_by_rank_that_lets_one_message_go_and_then_waits_is_caught(monkeypatch: Patch) -> None:
    """The mutant takes what was acked, and is not durable yet, for something in work."""
    note = PartitionRoom.note_hand_out

    def mutant(self: PartitionRoom, item: Item, *, with_room: bool) -> None:
        note(self, item, with_room=with_room)
        if not with_room:
            self._takes_with_room, self._in_work = True, item

    monkeypatch.setattr(PartitionRoom, "note_hand_out", mutant)
    monkeypatch.setattr(
        PartitionRoom, "waits_for_acks", property(lambda self: self._takes_with_room and self._in_work is not None)
    )
    assert caught("I17", far_ahead_by_rank)


def test_i17_a_transaction_that_waits_for_room_in_silence_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Assignment, "standing_still", [])
    assert caught("I17", far_ahead_by_rank)


def test_i17_a_message_that_comes_back_and_is_not_offered_again_is_caught(monkeypatch: Patch) -> None:
    """The mutant loses a message that has failed often."""
    add = InTurns.add
    monkeypatch.setattr(InTurns, "add", lambda self, item: item.deliveries >= TRIED_OFTEN or add(self, item))
    assert caught("I17")


def test_i11_a_claim_that_leaves_out_what_lies_above_the_base_is_caught(monkeypatch: Patch) -> None:
    _claiming(monkeypatch, lambda part, claim: replace(claim, runs=()))
    assert caught("I11")


def test_i1_a_log_that_is_read_beyond_an_open_transaction_is_caught(monkeypatch: Patch) -> None:
    read = Log.read

    def mutant(self: Log, position: int, most: int) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self, "stable_end", self.end)
            return read(self, position, most)

    monkeypatch.setattr(Log, "read", mutant)
    assert caught("I1")


# --- starts of assignments --------------------------------------------------------------------------------------------


def _assigning(
    patch: Patch, change: Callable[[CommitMap], CommitMap], after: Callable[[PartitionLedger, int], None]
) -> None:
    assign = Ledger.assign

    def mutant(self: Ledger, partition: int, loaded: CommitMap, target: int, *, start: int | None = None) -> int:
        generation = assign(self, partition, change(loaded), target, start=start)
        after(self._partitions[partition], target)
        return generation

    patch.setattr(Ledger, "assign", mutant)


def _as_it_is(anything: Any, *_: Any) -> Any:
    return anything


def _open_at(part: PartitionLedger, target: int) -> None:
    part.target = target
    part.open = part.pending.position >= target


def test_i4_a_hand_out_without_catch_up_is_caught(monkeypatch: Patch) -> None:
    _assigning(monkeypatch, _as_it_is, lambda part, target: _open_at(part, 0))
    assert caught("I4")


def test_i5_a_hand_out_below_the_end_of_the_commit_map_is_caught(monkeypatch: Patch) -> None:
    _assigning(monkeypatch, _as_it_is, _open_at)
    assert caught("I5", where_only_the_map_tells, steps=_MORE_STEPS)


def test_i1_a_map_that_is_believed_beyond_its_end_is_caught(monkeypatch: Patch) -> None:
    def longer(loaded: CommitMap) -> CommitMap:
        return replace(loaded, runs=(*loaded.runs[:-1], loaded.runs[-1] + 2)) if loaded.runs else loaded

    _assigning(monkeypatch, longer, _as_it_is)
    assert caught("I1")


def test_i3_done_runs_that_are_forgotten_while_they_are_read_again_are_caught(monkeypatch: Patch) -> None:
    _assigning(monkeypatch, lambda loaded: replace(loaded, runs=(), counts={}), _as_it_is)
    assert caught("I3")


def test_i3_done_runs_whose_records_were_compacted_away_and_are_forgotten_are_caught(monkeypatch: Patch) -> None:
    pass_over = PendingList.pass_over

    def mutant(self: PendingList, offset: int) -> int:
        return pass_over(self, offset) if self.loaded.done(offset) else self.next_done

    monkeypatch.setattr(PendingList, "pass_over", mutant)
    assert caught("I3")


# --- hand-out, settlement and leases ----------------------------------------------------------------------------------


def test_i4_a_release_that_ignores_that_a_newer_value_came_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(PartitionLedger, "supersede_held", lambda self, item: None)
    assert caught("I4")


def test_i6_a_delay_that_a_newer_value_does_not_end_is_caught(monkeypatch: Patch) -> None:
    discard, offer = PartitionLedger.discard, PartitionLedger.offer

    def forgotten(self: PartitionLedger, item: Item) -> None:
        delayed = item.state is MessageState.DELAYED
        discard(self, item)
        if delayed:
            item.state = MessageState.DELAYED

    def mutant(self: PartitionLedger, item: Item) -> None:
        self.waiting.setdefault(item.lane, item)
        offer(self, item)

    monkeypatch.setattr(PartitionLedger, "discard", forgotten)
    monkeypatch.setattr(PartitionLedger, "offer", mutant)
    assert caught("I6")


def test_i2_two_messages_of_a_key_in_work_at_once_are_caught(monkeypatch: Patch) -> None:
    def offer(self: PartitionLedger, item: Item) -> None:
        if self.open and item.state is MessageState.AVAILABLE:
            self._line.add(item)

    take = PartitionLedger.add

    def mutant(self: PartitionLedger, *columns: Any) -> None:
        held, self.held = self.held, {}
        take(self, *columns)
        self.held = held

    monkeypatch.setattr(PartitionLedger, "offer", offer)
    monkeypatch.setattr(PartitionLedger, "add", mutant)
    assert caught("I2")


def test_i2_a_lock_that_outlives_its_assignment_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(PartitionLedger, "end_locks", lambda self: list(self.held.values()))
    assert caught("I2")


def test_i15_a_consumer_that_goes_on_though_the_group_was_not_heard_of_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Lease, "lapsed", lambda self, now: False)
    assert caught("I15")


def test_i15_a_message_taken_ahead_that_comes_without_word_from_the_group_is_caught(monkeypatch: Patch) -> None:
    def mutant(self: HandOut, item: Item, now: float) -> bool:
        with suppress(AlreadySettled, LockLost):
            self._ledger.hand_over(item)
            return True
        return False

    monkeypatch.setattr(HandOut, "hand_over", mutant)
    assert caught("I15")


def test_i15_a_message_being_counted_that_comes_without_word_from_the_group_is_caught(monkeypatch: Patch) -> None:
    acquire, is_suspended = HandOut.acquire, HandOut.is_suspended

    def mutant(self: HandOut, *most: Any, **how: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            if not self._ledger.assignment.available:
                patch.setattr(self._lease, "lapsed", lambda now: False)
            return acquire(self, *most, **how)

    def suspended(self: HandOut, now: float) -> bool:
        return self._ledger.assignment.available > 0 and is_suspended(self, now)

    monkeypatch.setattr(HandOut, "acquire", mutant)
    monkeypatch.setattr(HandOut, "is_suspended", suspended)
    assert caught("I15", counting_each)


def test_i16_an_ack_that_is_accepted_while_the_last_commit_is_on_its_way_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(ConsumerCore, "end_locks", lambda self, partitions: self.ledger.withhold(partitions))
    assert caught("I16", moving, AcksWhileMoving)


# --- the commit pipeline ----------------------------------------------------------------------------------------------


def test_i3_a_waiter_that_is_told_when_the_commit_is_sent_is_caught(monkeypatch: Patch) -> None:
    take = Commits.prepare

    def mutant(self: Any, partitions: Any = None, leaving: Any = ()) -> Any:
        flight = take(self, partitions, leaving)
        if flight is not None:
            self.landed(flight, Answer.STORED)
            self._flight = flight
        return flight

    monkeypatch.setattr(Commits, "prepare", mutant)
    assert caught("I3")


def test_i3_an_answer_that_did_not_come_and_is_taken_for_a_good_one_is_caught(monkeypatch: Patch) -> None:
    answered = ConsumerCore.answered
    monkeypatch.setattr(ConsumerCore, "answered", lambda self, flight, answers: answered(self, flight, Answer.STORED))
    assert caught("I3")


def test_i3_an_ack_that_is_called_durable_because_its_partition_went_away_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Generations, "committed", lambda self, offset, generation: True)
    assert caught("I3")


def test_i3_a_text_that_is_taken_to_be_stored_since_a_longer_one_beside_it_was_refused_is_caught(
    monkeypatch: Patch,
) -> None:
    landed = Commits.landed

    def mutant(self: Any, flight: Flight[Any], answers: Any) -> None:
        sizes = {partition: len(said.encode()) for partition, said in flight.maps.items()}
        shorter = [partition for partition, size in sizes.items() if size < max(sizes.values())]
        if isinstance(answers, dict) and Answer.TOO_LARGE in answers.values():
            answers = answers | dict.fromkeys(shorter, Answer.STORED)
        landed(self, flight, answers)

    monkeypatch.setattr(Commits, "landed", mutant)
    assert caught("I3", where_limits_sink)


def test_i3_a_map_that_takes_back_what_was_promised_to_be_short_enough_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(CommitMap, "covers", lambda self, other: True)
    assert caught("I3", where_limits_sink)


def test_i10_a_consumer_that_cannot_hear_the_group_but_by_a_text_that_fits_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(consumer_core, "_HEARD", {Answer.STORED})
    assert caught("I10", where_limits_sink)


def test_i3_a_commit_for_partitions_of_a_former_assignment_is_caught(monkeypatch: Patch) -> None:
    take = Commits.prepare
    former: WeakKeyDictionary[Any, dict[int, Flight[Any]]] = WeakKeyDictionary()

    def mutant(self: Any, partitions: Any = None, leaving: Any = ()) -> Any:
        flight = take(self, partitions, leaving)
        if flight is None:
            return None
        last = former.setdefault(self, {})
        last.update(dict.fromkeys(flight.maps, flight))
        said = {p: last[p] for p in last if p in flight.maps or p not in self._partitions}
        self._flights[-1] = Flight(
            {p: one.maps[p] for p, one in said.items()},
            {p: one.numbers[p] for p, one in said.items()},
            {p: one.senders[p] for p, one in said.items()},
            flight.alone,
        )
        return self._flights[-1]

    monkeypatch.setattr(Commits, "prepare", mutant)
    assert caught("I3")


def test_i3_an_ack_that_is_called_durable_while_an_older_commit_may_come_again_is_caught(monkeypatch: Patch) -> None:
    take = Commits.prepare

    def mutant(self: Any, partitions: Any = None, leaving: Any = ()) -> Any:
        flight = take(self, partitions, leaving)
        if flight is None:
            return None
        self._flights[-1] = replace(flight, alone=frozenset(flight.maps))
        return self._flights[-1]

    monkeypatch.setattr(Commits, "prepare", mutant)
    assert caught("I3", kind=MovesWhileRefused)


def test_i3_a_late_commit_that_is_found_and_not_written_over_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Commits, "found", lambda self, partition, stored: True)
    assert caught("I3")


def test_i3_a_late_commit_that_is_believed_when_a_lost_partition_comes_back_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Promises, "broken", lambda self, partition, stored, now: None)
    assert caught("I3")


def test_i3_a_promise_that_is_kept_and_not_written_again_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Commits, "distrust", lambda self, partitions: None)
    assert caught("I3")


def test_i10_a_commit_in_doubt_that_is_not_said_again_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(PartitionCommits, "want", lambda self: None)
    assert caught("I10")


def test_i10_somebody_who_waits_and_is_never_told_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(PartitionCommits, "_resolve", lambda self, number: None)
    assert caught("I10")


def test_i10_a_position_that_stays_before_markers_and_holes_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Ledger, "advance", lambda self, positions: None)
    assert caught("I10")


def test_i14_a_hand_out_before_its_count_is_stored_is_caught(monkeypatch: Patch) -> None:
    def stored(self: Commits[Any], partition: int) -> Count:
        count = Count(0)
        count.done = True
        return count

    monkeypatch.setattr(Commits, "wait_stored", stored)
    assert caught("I14")


def test_i14_to_count_what_nobody_got_is_caught(monkeypatch: Patch) -> None:
    reserve = Ledger.reserve

    def mutant(self: Ledger, session: SessionPins | None = None) -> Item | None:
        item = reserve(self, session)
        if item is not None:
            item.reserved = False
        return item

    monkeypatch.setattr(Ledger, "reserve", mutant)
    assert caught("I14")


def test_i14_not_to_take_back_what_a_commit_on_its_way_counts_is_caught(monkeypatch: Patch) -> None:
    next_claim = PartitionCommits.next_claim

    def mutant(self: PartitionCommits[Any], *about: Any, **how: Any) -> CommitMap | None:
        attempts, self.attempts = self.attempts, self._stored  # as if nothing had been sent since
        try:
            return next_claim(self, *about, **how)
        finally:
            self.attempts = attempts

    monkeypatch.setattr(PartitionCommits, "next_claim", mutant)
    assert caught("I14", counting, MovesUnanswered)


def test_i14_to_count_what_is_taken_only_to_be_rejected_is_caught(monkeypatch: Patch) -> None:
    leave = Ledger.leave

    def mutant(self: Ledger, item: Item) -> None:
        leave(self, item)
        item.reserved = False

    monkeypatch.setattr(Ledger, "leave", mutant)
    assert caught("I14", counting)


# --- expiry -----------------------------------------------------------------------------------------------------------


def test_i18_a_hand_out_that_does_not_look_at_the_time_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Ledger, "pass_time", lambda self, clock: False)
    assert caught("I18", expiring)


def test_i18_a_message_that_is_set_aside_and_not_judged_again_is_caught(monkeypatch: Patch) -> None:
    waits = expiring_module._WAITS
    monkeypatch.setattr(expiring_module, "_counts", lambda item: item.state in waits)
    assert caught("I18", expiring_ahead)


def test_i18_a_message_that_comes_back_and_no_longer_expires_is_caught(monkeypatch: Patch) -> None:
    def mutant(self: Expiring, item: Item, twin: Item) -> None:
        twin.expires = item.expires

    monkeypatch.setattr(Expiring, "schedule_again", mutant)
    assert caught("I18", expiring)


def test_i18_a_message_of_its_own_ttl_that_waits_for_those_before_it_is_caught(monkeypatch: Patch) -> None:
    """The mutant notes a batch at the time of the last message that expires."""
    extend = ExpiryQueue.extend

    def mutant(self: ExpiryQueue[Item], bucket: int, entries: Collection[Item]) -> None:
        extend(self, max([bucket, *(item.expires >> BUCKET for item in entries)]), entries)

    monkeypatch.setattr(ExpiryQueue, "extend", mutant)
    assert caught("I18", expiring)


def test_i18_a_slow_clock_that_ignores_the_log_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(LogTime, "saw", lambda self, timestamp: None)
    assert caught("I18", expiring)


def test_i1_a_message_that_expires_in_its_last_moment_is_caught(monkeypatch: Patch) -> None:
    pop_due = ExpiryQueue.pop_due
    monkeypatch.setattr(ExpiryQueue, "pop_due", lambda self, now, most: pop_due(self, now + 1, most))
    monkeypatch.setattr(ExpiryQueue, "next", property(lambda self: -1))
    assert caught("I1", expiring)


def test_i1_a_message_that_is_done_before_it_is_in_the_expiry_topic_is_caught(monkeypatch: Patch) -> None:
    pop_expired = Ledger.pop_expired

    def mutant(self: Ledger, most: int) -> list[Item]:
        items = pop_expired(self, most)
        for item in items:
            self.bury_expired(item)
        return items

    monkeypatch.setattr(Ledger, "pop_expired", mutant)
    assert caught("I1", expiring_elsewhere)


def test_i19_a_letter_of_a_value_whose_successor_was_consumed_is_caught(monkeypatch: Patch) -> None:
    """The mutant writes letters while it is catching up."""
    expire = TimedPartition.expire

    def mutant(self: TimedPartition, item: Item) -> None:
        is_open, self._part.open = self._part.open, True
        expire(self, item)
        self._part.open = is_open

    monkeypatch.setattr(TimedPartition, "expire", mutant)
    assert caught("I19", expiring_elsewhere)


def test_i19_a_letter_by_a_consumer_that_has_lost_the_message_is_caught(monkeypatch: Patch) -> None:
    def mutant(self: Ledger, most: int) -> list[Item]:
        assert self.times is not None
        kept = self.times.kept
        return [kept.pop() for _ in range(min(most, len(kept)))]

    monkeypatch.setattr(Ledger, "pop_expired", mutant)
    assert caught("I19", expiring_elsewhere)


def test_i10_a_letter_that_fails_and_is_forgotten_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Ledger, "keeps_expired", lambda self, item: False)
    assert caught("I10", expiring_elsewhere)


def test_i1_r39_one_that_judges_by_the_newest_revision_is_caught(monkeypatch: Patch) -> None:
    """The mutant lets messages from before the alteration expire."""
    monkeypatch.setattr(TimeRule, "expiry_times", lambda self: ExpiryTimes.of(self.ttl))
    assert caught("I1", altered)


def test_i18_r39_one_that_does_not_notice_an_alteration_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Member, "_moves_over", lambda self: False)
    assert caught("I18", altered)


def test_i20_r39_one_that_schedules_by_the_terms_of_another_time_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(TimeRule, "due_times", lambda self: DueTimes.of(2.0))
    assert caught("I20", altered)


def test_i4_an_expiry_that_brings_the_replaced_value_back_is_caught(monkeypatch: Patch) -> None:
    give_back = PartitionLedger.give_back

    def mutant(self: PartitionLedger, item: Item, after: MessageState, delayed: bool) -> Item | None:
        revives = item.state is MessageState.STALE and item.lane not in self.waiting
        twin = give_back(self, item, after, delayed)
        if revives:
            twin = item.again()
            twin.expires = item.expires
            self.pending.append(twin)
            self.waiting[twin.lane] = twin
            self.offer(twin)
        return twin

    monkeypatch.setattr(PartitionLedger, "give_back", mutant)
    assert caught("I4", expiring)


# --- scheduled messages -----------------------------------------------------------------------------------------------


def test_i20_a_message_that_comes_before_it_is_due_is_caught(monkeypatch: Patch) -> None:
    pop_due = ScheduledItems.pop_due

    def mutant(self: ScheduledItems) -> list[Item]:
        self._time.now += 1000
        try:
            return pop_due(self)
        finally:
            self._time.now -= 1000

    monkeypatch.setattr(ScheduledItems, "pop_due", mutant)
    assert caught("I20", scheduling)


def test_i20_a_message_that_counts_at_once_if_it_is_read_while_catching_up_is_caught(monkeypatch: Patch) -> None:
    """The mutant buffers it, over older ones that still count."""
    not_due = TimedPartition._not_due

    def mutant(self: TimedPartition, batch: Any) -> list[tuple[int, int]]:
        return not_due(self, batch) if self._part.open else []

    monkeypatch.setattr(TimedPartition, "_not_due", mutant)
    assert caught("I20", scheduling)


def test_i1_a_value_that_still_counts_and_is_dropped_for_a_scheduled_one_is_caught(monkeypatch: Patch) -> None:
    add_scheduled = TimedPartition._add_scheduled

    def mutant(self: TimedPartition, batch: Any, key: bytes | None, due: int) -> None:
        add_scheduled(self, batch, key, due)
        if key in self._part.waiting:
            self._part.discard(self._part.waiting[key])

    monkeypatch.setattr(TimedPartition, "_add_scheduled", mutant)
    assert caught("I1", scheduling)


def test_i1_a_scheduled_message_that_is_dropped_for_a_later_scheduled_one_is_caught(monkeypatch: Patch) -> None:
    add_scheduled = TimedPartition._add_scheduled

    def mutant(self: TimedPartition, batch: Any, key: bytes | None, due: int) -> None:
        if key in self._scheduled:
            self._drop(self._scheduled.pop(key), deleted=False)
        add_scheduled(self, batch, key, due)

    monkeypatch.setattr(TimedPartition, "_add_scheduled", mutant)
    assert caught("I1", scheduling)


def test_i1_a_commit_that_passes_what_is_scheduled_is_caught(monkeypatch: Patch) -> None:
    claim = PendingList.claim

    def mutant(self: PendingList, leaving: Collection[Item] = ()) -> tuple[int, tuple[int, ...]]:
        return claim(self, {*leaving, *(item for item in self if item.state is MessageState.SCHEDULED)})

    monkeypatch.setattr(PendingList, "claim", mutant)
    assert caught("I1", scheduling)


def test_i6_a_scheduled_message_that_outlives_a_newer_one_is_caught(monkeypatch: Patch) -> None:
    """The mutant does not drop it when a newer message that counts is read. It hides that one when it is due."""

    def mutant(self: TimedPartition, batch: Any, keys: Any) -> None:
        if keys:
            self._part.add_counting(batch, keys)

    monkeypatch.setattr(TimedPartition, "_add_counting", mutant)
    assert caught("I6", scheduling_apart)


def test_i4_a_held_message_that_comes_back_over_one_that_is_due_is_caught(monkeypatch: Patch) -> None:
    come_due = TimedPartition.come_due

    def mutant(self: TimedPartition, item: Item) -> None:
        held = self._part.held.get(item.lane)
        state = None if held is None else held.state
        come_due(self, item)
        if held is not None and state is MessageState.ACQUIRED:
            held.state = state
            self._part.pending.append(held)

    monkeypatch.setattr(TimedPartition, "come_due", mutant)
    assert caught("I4", scheduling)


def test_i4_a_slow_clock_that_ignores_the_log_for_what_is_due_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(LogTime, "saw", lambda self, timestamp: None)
    assert caught("I4", scheduling)


def test_i10_a_message_that_never_comes_due_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(ScheduledItems, "pop_due", lambda self: [])
    assert caught("I10", scheduling)


# --- groups -----------------------------------------------------------------------------------------------------------


def grouping(setting: Setting, mode: GroupMode = "sticky") -> Setting:
    limits = replace(setting.options.limits, max_in_work=12)
    options = replace(setting.options, groups=Groups(mode=mode), limits=limits, order="tail", max_delay=None)
    return replace(setting, queues=1, options=options)


def sharing_groups(setting: Setting) -> Setting:
    return grouping(setting, "shared")


def test_i21_a_shared_group_that_is_free_while_some_of_it_is_in_work_is_caught(monkeypatch: Patch) -> None:
    settled = GroupedQueue.settled

    def mutant(self: GroupedQueue, item: Item, group: WaitingGroup) -> None:
        unsettled, group.unsettled = group.unsettled, 1
        if group.session is not None:
            settled(self, item, group)
        group.unsettled = unsettled - 1

    monkeypatch.setattr(GroupedQueue, "settled", mutant)
    assert caught("I21", sharing_groups)


def test_i21_a_sticky_group_that_is_free_once_it_is_settled_is_caught(monkeypatch: Patch) -> None:
    begin = GroupedQueue.__init__

    def mutant(self: GroupedQueue, *arguments: Any) -> None:
        begin(self, *arguments)
        self._sticky = False

    monkeypatch.setattr(GroupedQueue, "__init__", mutant)
    assert caught("I21", grouping)


def test_i21_a_pinned_group_that_is_on_offer_to_all_is_caught(monkeypatch: Patch) -> None:
    lowest = GroupedQueue._lowest

    def mutant(self: GroupedQueue, offers: Offers[Item], session: SessionPins) -> Any:
        pinned = {group: group.session for group in self._groups.values() if group.session is not None}
        for group in pinned:
            group.session = session
        found = lowest(self, offers, session)
        for group, owner in pinned.items():
            group.session = owner
        return found

    monkeypatch.setattr(GroupedQueue, "_lowest", mutant)
    assert caught("I21", grouping)


def test_i22_a_group_that_does_not_wait_for_a_message_with_a_delay_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(GroupedQueue, "keep_place", lambda self, item: None)
    assert caught("I22", grouping)


def grouping_ahead(setting: Setting) -> Setting:
    return scheduling(grouping(setting))


def in_place(setting: Setting) -> Setting:
    options = replace(setting.options, order="in-place", ttl=None, expiry_topic=False, text_limit=4095)
    return replace(setting, gap=0, broker_limits=(4096,), options=options)


def test_i26_a_place_that_is_done_while_its_message_waits_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(PlacedPendingList, "renew", PendingList.renew)
    assert caught("I26", in_place)


def test_i26_a_place_that_is_lost_when_its_message_comes_back_is_caught(monkeypatch: Patch) -> None:
    def mutant(self: PlacedPendingList, item: Item, twin: Item) -> None:
        PendingList.replace(self, item, twin)
        if item in self.places:
            self._remove_place(self.places.pop(item), acked=False)

    monkeypatch.setattr(PlacedPendingList, "replace", mutant)
    assert caught("I26", in_place)


def test_i25_a_new_value_that_takes_its_own_place_is_caught(monkeypatch: Patch) -> None:
    def mutant(self: PartitionLedger, item: Item, old: Item) -> None:
        assert isinstance(self.pending, PlacedPendingList)
        self.pending.pass_place(old, item)

    monkeypatch.setattr(PartitionLedger, "inherit", mutant)
    assert caught("I25", in_place)


@pytest.mark.parametrize(("invariant", "focus"), [("I22", grouping_ahead), ("I25", scheduling)])
def test_i25_places_by_when_a_consumer_reads_a_message_are_caught(
    monkeypatch: Patch, invariant: str, focus: Focus
) -> None:
    slots = count()

    def mutant(kind: Callable[..., Item], _: DueTimes) -> Callable[..., Item]:
        return lambda *arguments, slot=-1: kind(*arguments[:6], slot=next(slots))

    monkeypatch.setattr(ledger_module, "placed_items", mutant)
    assert caught(invariant, focus)


def test_i22_a_message_that_comes_back_and_goes_to_the_end_of_its_group_is_caught(monkeypatch: Patch) -> None:
    again, slots = Item.again, count(1 << 160)

    def mutant(self: Item) -> Item:
        twin = again(self)
        twin.slot = next(slots)
        return twin

    monkeypatch.setattr(Item, "again", mutant)
    assert caught("I22", grouping)


def test_i17_a_message_that_nobody_received_and_pins_its_group_is_caught(monkeypatch: Patch) -> None:
    settled = GroupedQueue.settled

    def mutant(self: GroupedQueue, item: Item, group: WaitingGroup) -> None:
        reserved, item.reserved = item.reserved, False
        settled(self, item, group)
        item.reserved = reserved

    monkeypatch.setattr(GroupedQueue, "settled", mutant)
    assert caught("I17", grouping)


def test_i17_a_group_that_stays_with_a_session_that_has_ended_is_caught(monkeypatch: Patch) -> None:
    def mutant(self: GroupedQueue, session: SessionPins) -> None:
        session.ended = True

    monkeypatch.setattr(GroupedQueue, "end", mutant)
    assert caught("I17", grouping)


def test_i17_a_group_that_is_free_again_and_on_offer_to_nobody_is_caught(monkeypatch: Patch) -> None:
    unpin = GroupedQueue._unpin

    def mutant(self: GroupedQueue, group: WaitingGroup, session: SessionPins) -> None:
        unpin(self, group, session)
        self._unlist(group)

    monkeypatch.setattr(GroupedQueue, "_unpin", mutant)
    assert caught("I17", sharing_groups)


# --- transactions -----------------------------------------------------------------------------------------------------


def test_i3_a_transaction_that_commits_while_a_plain_commit_is_on_its_way_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(ConsumerCore, "is_quiet", True)
    assert caught("I3")


def test_i3_a_transaction_that_commits_while_an_older_commit_may_come_again_is_caught(monkeypatch: Patch) -> None:
    """The newest commit is known to be stored, but the client retries the one before, which overwrites it."""
    monkeypatch.setattr(ConsumerCore, "is_quiet", property(lambda self: not self._unanswered))
    assert caught("I3", kind=MovesWhileRefused)


def test_i3_a_transaction_that_commits_while_a_commit_without_an_answer_may_arrive_is_caught(
    monkeypatch: Patch,
) -> None:
    """The client has given up on it, but it may still be in flight."""
    monkeypatch.setattr(ConsumerCore, "is_quiet", property(lambda self: not self.commits.in_flight))
    assert caught("I3", kind=TransactsUnanswered)


def test_i3_a_plain_commit_while_a_transaction_commits_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(ConsumerTransaction, "excludes_commits", False)
    assert caught("I3", kind=MovesInTransactions)


def test_i3_an_owner_that_begins_before_it_is_decided_what_is_committed_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Group, "offsets", lambda self, partition: self._offsets[partition])
    assert caught("I3", kind=MovesInTransactions)


def test_i13_a_transaction_of_unknown_outcome_that_is_taken_for_aborted_is_caught(monkeypatch: Patch) -> None:
    end_commit = Member.end_commit

    def mutant(self: Member, *, answered: bool) -> bool:
        return end_commit(self, answered=answered) and (answered or self.abort())

    monkeypatch.setattr(Member, "end_commit", mutant)
    assert caught("I13", undisturbed)


# --- browsing ---------------------------------------------------------------------------------------------------------


def test_i7_a_browser_that_goes_by_the_commits_from_before_its_dump_is_caught(monkeypatch: Patch) -> None:
    begin, show = Browser.__init__, Browser.show

    def remember(self: Any, logs: Any, group: Any, *rest: Any) -> None:
        begin(self, logs, group, *rest)
        self._before = {partition: group.visible(partition) for partition in range(len(logs))}

    def mutant(self: Any) -> bool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self._group, "visible", self._before.__getitem__)
            return show(self)

    monkeypatch.setattr(Browser, "__init__", remember)
    monkeypatch.setattr(Browser, "show", mutant)
    assert caught("I7")


def test_i8_a_browser_that_does_not_read_to_the_end_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Browser, "read", lambda self, most: False)
    assert caught("I8")


# --- truncating -------------------------------------------------------------------------------------------------------


def test_i12_a_truncation_by_the_bases_of_some_queues_only_is_caught(monkeypatch: Patch) -> None:
    reclaimable = reclaiming.reclaimable
    monkeypatch.setattr(reclaiming, "reclaimable", lambda bases: reclaimable(bases[:1]))
    assert caught("I12")


# --- rings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("invariant", ["I11", "I16"])
def test_an_eviction_that_no_commit_says_is_caught(invariant: str, monkeypatch: Patch) -> None:
    """The mutant leaves it to the next owner to evict the message again, as it does with what has expired."""

    def mutant(self: PartitionLedger, item: Item) -> None:
        self.discard(item, TRANSITIONS[MessageEvent.EVICT])
        self.dropped_early()

    monkeypatch.setattr(PartitionLedger, "evict", mutant)
    if invariant != "I11":  # which finds it in any claim
        monkeypatch.setattr(Proof, "faithful", lambda *args: None)
    assert caught(invariant, ringed_without_time)


def test_i23_a_ring_that_evicts_the_highest_messages_is_caught(monkeypatch: Patch) -> None:
    def mutant(self: ByOffset) -> Item | None:
        while self._line:
            offset, item = self._line.pop()
            if item.offset == offset and item.state in WAITS:
                return item
        return None

    monkeypatch.setattr(ByOffset, "pop", mutant)
    assert caught("I23", ringed)


def test_i23_a_ring_that_knows_no_ranks_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Ring, "new_order", lambda self: ByOffset())
    assert caught("I23", ringed_by_rank)


def test_i23_a_ring_that_evicts_the_best_rank_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(eviction_order, "_worst_first", lambda rank: rank)
    assert caught("I23", ringed_by_rank)


@pytest.mark.parametrize("order", [ByOffset, ByRank])
def test_i23_a_ring_that_evicts_what_came_last_is_caught(order: type[EvictionOrder], monkeypatch: Patch) -> None:
    """The mutant forgets which one that is."""
    evict = RingPartition._evict_surplus

    def mutant(self: RingPartition, most_messages: float, most_bytes: float) -> None:
        self._newest = -1
        evict(self, most_messages, most_bytes)

    monkeypatch.setattr(RingPartition, "_evict_surplus", mutant)
    assert caught("I23", ringed_without_time if order is ByOffset else ringed_by_rank)


def test_i23_an_update_that_costs_another_key_its_value_is_caught(monkeypatch: Patch) -> None:
    """The mutant counts both values of the key, as Qpid did."""
    renew = PendingList.renew

    def mutant(self: PendingList, item: Item, offset: int) -> None:
        assert self.meter is not None
        self.meter.swap(item, item.again())
        renew(self, item, offset)

    monkeypatch.setattr(PendingList, "renew", mutant)
    assert caught("I23", ringed)


def test_i23_a_message_that_is_done_and_still_counts_is_caught(monkeypatch: Patch) -> None:
    remove = PendingList.remove

    def mutant(self: PendingList, item: Item, *, acked: bool) -> None:
        meter = self.meter
        if acked:
            self.meter = None
        remove(self, item, acked=acked)
        self.meter = meter

    monkeypatch.setattr(PendingList, "remove", mutant)
    assert caught("I23", ringed)


def test_i23_a_ring_that_forgets_what_is_in_work_is_caught(monkeypatch: Patch) -> None:
    hold = PartitionLedger.hold

    def mutant(self: PartitionLedger, item: Item) -> None:
        assert self.pending.meter is not None
        self.pending.meter.exclude(item)
        hold(self, item)

    monkeypatch.setattr(PartitionLedger, "hold", mutant)
    assert caught("I23", ringed)


def test_i23_a_message_that_comes_back_and_is_not_judged_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(RingPartition, "come_back", lambda self, item: None)
    assert caught("I23", ringed)


def test_i23_a_ring_that_does_not_wait_for_the_end_of_the_log_is_caught(monkeypatch: Patch) -> None:
    """The mutant evicts for values that are deleted further on."""
    update = RingPartition.update

    def mutant(self: RingPartition) -> None:
        is_open, self._part.open = self._part.open, True
        update(self)
        self._part.open = is_open

    monkeypatch.setattr(RingPartition, "update", mutant)
    assert caught("I23", ringed)


def test_i23_a_message_that_has_expired_and_costs_another_its_place_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(RingPartition, "keep", lambda self, item: None)
    assert caught("I23", ringed_expiring_elsewhere)


def test_i23_a_message_that_is_due_and_not_counted_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(RingPartition, "enter", lambda self, item: None)
    assert caught("I23", ringed_scheduling)
