"""The steps of consumers."""

from __future__ import annotations

from collections.abc import Callable

from lvq_kafka.core.ledger.ledger import Item
from tests.simulator.cluster_steps import ClusterSteps
from tests.simulator.member import Member
from tests.simulator.scene import FAR_AHEAD, one_of

__all__ = ["LOCK_TIME", "ConsumerSteps"]

_MOST_MEMBERS = 4
_SILENCE = 3.0  # seconds
LOCK_TIME = 2.0
"""Seconds that a message may be held or is delayed."""


class ConsumerSteps(ClusterSteps):
    """Steps of processes, their engines and their holders."""

    # ---------------------------------------------------------------- processes

    def join(self, who: int = 0, how: int = 0) -> bool:
        """Start a consumer: always if the queue has none running, otherwise rarely."""
        queue = self._queues[who % len(self._queues)]
        running = any(not member.stopped and self._queue_of[member.number] is queue for member in self.members)
        if len(self.members) >= _MOST_MEMBERS or (running and how % 16):
            return False
        self._start(queue)
        return True

    def crash(self, who: int, how: int) -> bool:
        """Crash a consumer. The group does not know yet, and its commits stay in flight."""
        member = one_of(self.members, who)
        if member is None:
            return False
        for stage in _stages(member):
            self.counts[f"crash {stage}"] += 1
        self._bury(member)
        self.join(who)  # a restart
        return True

    def stop(self, who: int, how: int) -> bool:
        """Pause a consumer, which does not notice."""
        member = self._member(who)
        if member is None:
            return False
        member.stopped = True
        return True

    def resume(self, who: int, how: int) -> bool:
        """Resume a paused consumer, after some time or none. It continues as if nothing had happened."""
        member = self._pick([member for member in self.members if member.stopped], who)
        if member is None:
            return False
        self._pass(how % 16 if how % 3 == 0 else 0)
        member.stopped = False
        self.counts["stood still"] += member.in_doubt
        self.counts["zombies"] += member.number not in self._queue_of[member.number].group.members
        return True

    def leave(self, who: int, how: int) -> bool:
        """Close a consumer if there is another one."""
        member = self._member(who)
        return len(self.members) > 1 and member is not None and self._closed(member, member.close())

    # ---------------------------------------------------------------- the group

    def heartbeat(self, who: int, how: int) -> bool:
        return self._first(who, lambda member: self._beat(member, how))

    def _beat(self, member: Member, how: int) -> bool:
        before = len(member.lives)
        changed = member.heartbeat()
        if how % 4:
            changed = member.load() or changed
        self.counts["partitions withheld"] += len(member.going) if changed else 0
        self.counts["partitions lost"] += max(0, before - len(member.lives))
        return changed

    def give_up(self, who: int, how: int) -> bool:
        return self._first(who, lambda member: self._closed(member, member.give_up(urgent=how % 4 > 0)))

    def _closed(self, member: Member, done: bool) -> bool:
        if member.closed:
            self._bury(member)
        return done

    # ---------------------------------------------------------------- working

    def read(self, who: int, how: int) -> bool:
        return self._first(who, lambda member: self._read(member, how))

    def _read(self, member: Member, how: int) -> bool:
        partitions = list(member.lives)
        turn = how % len(partitions) if partitions else 0
        most, at_once = 1 + how // 16 * (how % 2) * 3, how % 4 > 0
        return any(member.fetch(p, most, at_once=at_once) for p in partitions[turn:] + partitions[:turn])

    def hand_out(self, who: int, how: int) -> bool:
        """Hand out messages. If a lease has lapsed, renew it first with a commit."""
        if self._first(who, lambda member: self._hand_out(member, how)):
            return True
        if not any(member.core.hand_out.is_suspended(self._now) for member in self.members if not member.stopped):
            return False
        return self.answer(who, how) or self.deliver(who, how) or self.commit(who, how)

    def _hand_out(self, member: Member, how: int) -> bool:
        if len(member.sessions) > 1 and how % 16 == 15:
            member.end_session(how // 16)
            self.counts["sessions ended"] += 1
        return member.hand_out(1 + how // 16, how)

    def settle(self, who: int, how: int) -> bool:
        """Let a holder work, or settle a message."""
        member = self._pick([member for member in self.members if member.held and not member.stopped], who)
        if member is None:
            return False
        item = list(member.held)[how // 8 % len(member.held)]
        _SETTLING[how % 8](self, member, item)
        owner = self._queue_of[member.number].group.owner[item.partition]
        self.counts["settled by one who is no owner"] += owner != member.number
        return True

    def delay_of(self, item: Item) -> float:
        """Return the delay of a message that is released, in seconds."""
        far = self._setting.options.max_delay == FAR_AHEAD and item.offset % 2 > 0
        return FAR_AHEAD if far else LOCK_TIME

    def letter(self, who: int, how: int) -> bool:
        return self._first(who, lambda member: member.letter(stored=how % 4 > 0))

    def transact(self, who: int, how: int) -> bool:
        """Continue a transaction: send its commit, commit it, or abort it."""
        member = self._pick([member for member in self.members if member.work and not member.stopped], who)
        if member is None or member.work is None:
            return False
        if member.work.committing:
            done = member.end_commit(answered=how % 4 > 0)
            self.counts["transactions committed"] += member.work is None
            return done
        if how % 8 == 0:
            return member.abort()
        return member.begin_commit(reached=how % 8 != 1, answered=how % 8 != 2)

    def tick(self, who: int, how: int) -> bool:
        """Let time pass, then run the turn of a consumer."""
        self._pass(how % 3)
        return self._first(who, lambda member: member.turn())

    def _pass(self, seconds: int) -> None:
        """Let time pass. Running engines still get their turns."""
        for _ in range(seconds):
            self._now += 1
            for member in self.members:
                if not member.stopped and self._now - member.turned > _SILENCE:
                    member.turn()

    # ---------------------------------------------------------------- committing

    def commit(self, who: int, how: int) -> bool:
        return self._first(who, lambda member: member.commit())

    def answer(self, who: int, how: int) -> bool:
        return self._first(who, lambda member: self._closed(member, member.answer()))

    def time_out(self, who: int, how: int) -> bool:
        """Time out a consumer's wait for an answer, usually when none can come."""
        return self._first(who, lambda member: self._wait_no_longer(member, how))

    def _wait_no_longer(self, member: Member, how: int) -> bool:
        connection = member.connection
        if how % 8 and (connection.requests or connection.refused or connection.answers):
            return False
        return self._closed(member, member.time_out())

    def look(self, who: int, how: int) -> bool:
        return self._first(who, lambda member: member.look())


_SETTLING: list[Callable[[ConsumerSteps, Member, Item], None]] = [
    lambda world, member, item: member.work_on(item),
    lambda world, member, item: member.ack(item),
    lambda world, member, item: member.ack(item, wait=True),
    lambda world, member, item: member.release(item, 0),
    lambda world, member, item: member.release(item, world.delay_of(item)),
    lambda world, member, item: member.reject(item),
    lambda world, member, item: member.leave(item),
    lambda world, member, item: member.extend(item, LOCK_TIME),
]


def _stages(member: Member) -> list[str]:
    """Return the stages that a member's messages are in."""
    reached = {
        "s1 fetched": member.fetched is not None,
        "s2 conflated": member.ledger.assignment.available > 0,
        "s3 handed out": len(member.held) > len(member.worked),
        "s4 side effect done": bool(member.worked),
        "s5 acked": member.acks > 0,
        "s6 commit sent": bool(member.connection.requests),
        "s7 commit applied": bool(member.connection.answers),
        "s8 answer seen": member.answered,
    }
    return [stage for stage, there in reached.items() if there]
