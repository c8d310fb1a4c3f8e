"""The world: a topic, its queues, their consumers and browsers, and everything that can happen to them.

A step is a name and two small numbers, which choose its subject and its variant. Hypothesis, which shrinks scripts of
steps, random walks, which are fast, and regression tests all use the same scripts.
"""

from __future__ import annotations

from lvq_kafka.core.waiting.lifecycle import MessageState
from tests.simulator.consumer_steps import ConsumerSteps
from tests.simulator.member import Member
from tests.simulator.proof import Violation
from tests.simulator.scene import FAR_AHEAD, Queue, Step, one_of

__all__ = ["ACTIONS", "World"]

_ROUNDS = 20  # turns that an undisturbed consumer gets to reach the end, and again for each message

ACTIONS: dict[str, int] = {
    "produce": 8,
    "decide": 2,
    "compact": 6,
    "reclaim": 3,
    "join": 1,
    "crash": 2,
    "stop": 2,
    "resume": 2,
    "leave": 1,
    "notice": 1,
    "evict": 1,
    "rebalance": 1,
    "limit": 2,
    "heartbeat": 2,
    "give_up": 2,
    "read": 8,
    "hand_out": 12,
    "settle": 24,
    "letter": 8,
    "transact": 12,
    "expire": 1,
    "tick": 4,
    "commit": 12,
    "deliver": 12,
    "stale": 1,
    "answer": 12,
    "time_out": 2,
    "look": 2,
    "browse": 6,
}
"""All actions, with their relative frequencies."""

_LADDER = [
    "answer",
    "deliver",
    "commit",
    "settle",
    "hand_out",
    "read",
    "letter",
    "transact",
    "tick",
    "time_out",
    "give_up",
    "heartbeat",
    "notice",
    "expire",
    "join",
    "decide",
    "produce",
]
"""Substitutes for impossible actions: the next possible one happens, usually a precondition."""

_BEFORE = {action: _LADDER[rung + 1 :] for rung, action in enumerate(_LADDER)} | {
    "letter": _LADDER[3:],
    "transact": [action for action in _LADDER if action != "transact"],
    "tick": _LADDER[4:],
    "expire": _LADDER[7:],
    "stale": _LADDER[1:],
    "reclaim": _LADDER,
}


class World(ConsumerSteps):
    """The whole simulation. ``counts`` has the number of times that each action happened."""

    def act(self, action: str, who: int = 0, how: int = 0) -> None:
        """Do an action or, if it is impossible, one of its substitutes; then check the member concerned."""
        self.script.append(Step(action, who, how))
        for name in (action, *_BEFORE.get(action, ())):
            if name not in self._setting.never and getattr(self, name)(who, how):
                self.counts[name] += 1
                self.counts["steps"] += 1
                break
        member, self._touched = self._touched, None
        if member is not None and not member.closed:
            member.check()
            self._count_room(member)

    def _count_room(self, member: Member) -> None:
        ledger, gated = member.ledger, member.ledger.assignment.gated > 0
        self.counts["steps with messages gated"] += gated
        self.counts["steps with groups of several sessions"] += member.grouping.are_apart(member.working)
        self.counts["steps after something has expired"] += ledger.stats.expired > 0
        self.counts["steps after something was evicted"] += ledger.stats.evicted > 0
        self.counts["steps after an alteration"] += len(ledger.rules.times.earlier) > 0
        self.counts["steps while something is scheduled"] += ledger.times is not None and ledger.times.scheduled > 0
        self.counts["steps with acks that wait for room"] += member.commits.text_is_full
        if ledger.capacity.limit < self._setting.options.text_limit:
            self.counts["steps with messages gated by a limit that sank"] += gated
            self.counts["steps with more committed than fits"] += member.commits.longest > ledger.capacity.limit

    # ---------------------------------------------------------------- the end

    def finish(self, who: int = 0, how: int = 0) -> None:
        """Check I10: once producers and failures stop, one consumer of each queue consumes and decides everything.

        Before that, if anything is scheduled for longer than the history lasts, I17: it consumes all the others.
        """
        self.script.append(Step("finish", who, how))
        while self._transactions:
            self.decide(who, how)
        survivors = [self._survivor(queue, who, how) for queue in self._queues]
        for member in [member for member in self.members if member not in survivors]:
            self._bury(member)
        while self.deliver(0, 5) and self._adrift:
            pass
        while self._orphans:
            self.expire(0, 0)
        for queue, member in zip(self._queues, survivors):
            for number in set(queue.group.members) - {member.number}:
                queue.group.remove(number)
            rounds = _ROUNDS * (1 + sum(map(len, queue.proof.alive + queue.proof.scheduled)))
            if self._setting.options.max_delay == FAR_AHEAD:
                self._consume_due(queue, member, rounds)
            for _ in range(rounds):
                if self._is_done(queue) and not member.awaited:
                    break
                self._turn(member)
            for partition in range(len(self._logs)):
                queue.proof.converged(partition)
            queue.proof.told(member.awaited)
        self.counts["worlds"] += 1

    def _survivor(self, queue: Queue, who: int, how: int) -> Member:
        mine = [member for member in self.members if self._queue_of[member.number] is queue and not member.closing]
        member = None if how % 3 == 0 else one_of(mine, who)
        if member is None:
            member = self._start(queue)
        member.stopped = False
        return member

    def _consume_due(self, queue: Queue, member: Member, rounds: int) -> None:
        """Check that all is consumed which is due, and not delayed. Then let time pass until all is."""
        for _ in range(rounds):
            if not (left := self._left_of_due(queue, member)):
                break
            self._turn(member)
        if left and not member.ledger.bounded:
            raise Violation("I17", f"of all that is due, these were never consumed: {left}")
        self._now += FAR_AHEAD

    def _left_of_due(self, queue: Queue, member: Member) -> set[tuple[int, int]]:
        """Return what is due and left, by partition and offset."""
        alive, has_expired = enumerate(queue.proof.alive), queue.proof.has_expired
        left = {
            (partition, at) for partition, lanes in alive for at in lanes.values() if not has_expired(partition, at)
        }
        waiting = [item for part in member.ledger._partitions.values() for item in part.waiting.values()]
        name = member.grouping.name
        later = {item for item in waiting if item.state is MessageState.DELAYED}
        groups = {name(item) for item in later} - {None}  # which wait for these
        return left - {(item.partition, item.offset) for item in waiting if item in later or name(item) in groups}

    def _is_done(self, queue: Queue) -> bool:
        return all(
            not queue.proof.left(partition)
            and queue.group.visible(partition).base == log.end
            and not queue.group.visible(partition).runs
            for partition, log in enumerate(self._logs)
        )

    def _turn(self, member: Member) -> None:
        """Do one round of everything an undisturbed consumer does."""
        member.turn()
        member.heartbeat()
        member.give_up(urgent=True)
        member.load()
        for partition in list(member.lives):
            member.fetch(partition, 1000, at_once=True)
        for which in range(len(member.sessions)):
            while member.hand_out(which=which):
                pass
        for item in list(member.held):
            member.ack(item)
        while member.letter(stored=True):
            pass
        if member.work is not None:
            member.begin_commit(reached=True, answered=True)
            member.end_commit(answered=True)
        self._now += 1
        member.turn()
        member.look()
        self._commit_undisturbed(member)
        member.check()
