"""The steps of the cluster: its topic, groups and commits in flight."""

from __future__ import annotations

from lvq_kafka.managing import reclaiming
from tests.simulator.browser import Browser
from tests.simulator.group import Connection, Request
from tests.simulator.log import Transaction
from tests.simulator.member import Member
from tests.simulator.scene import FAR_AHEAD, Queue, Scene, one_of

__all__ = ["ClusterSteps"]

_OWN_TTLS = (None, None, 0, 1000, 3000, 8000, 1, None)  # by the kind of a message; 0 says none
_DELAYS = (None, None, None, 0, 1000, 2000, 3000, 9000)


class ClusterSteps(Scene):
    """Steps of producers, the cleaner, the coordinator, the network and browsers."""

    # ---------------------------------------------------------------- the topic

    def produce(self, who: int, how: int) -> bool:
        """Append a value or a delete, with or without a key, in a transaction or not."""
        log = self._logs[who % len(self._logs)]
        number, kind = how % 8, how // 8
        key = None if number == 7 else b"%d" % (number % self._setting.keys)
        transaction = None
        if kind == 1:
            if len(self._transactions) < 2:
                self._transactions.append(Transaction())
            transaction = self._transactions[who % len(self._transactions)]
        ttl = _OWN_TTLS[kind] if self._setting.options.times.expires else None
        value = None if kind == 0 and key is not None else b"value"
        delay = _DELAYS[(kind + number + who) % 8] if self._setting.options.times.may_schedule else None
        if self._setting.options.max_delay == FAR_AHEAD and delay is not None and delay >= 3000:
            delay = int(FAR_AHEAD * 1000)
        log.append(key, value, transaction, timestamp=int(self._now * 1000), ttl=ttl, delay=delay)
        log.end += self._setting.gap
        self._settle()
        return True

    def decide(self, who: int, how: int) -> bool:
        """Commit or abort a producer's transaction."""
        transaction = one_of(self._transactions, who)
        if transaction is None:
            return False
        self._transactions.remove(transaction)
        transaction.open, transaction.committed = False, how % 4 > 0
        for log in self._logs:
            log.decide(transaction)
        self._settle()
        return True

    def compact(self, who: int, how: int) -> bool:
        """Compact part of a log."""
        # One who does not know where the log ends has to find the deletes in it.
        log, keeps_deletes = self._logs[who % len(self._logs)], not self._setting.options.ends_known
        gone = log.compact(how | how << 6, self._now * 1000, keeps_deletes=keeps_deletes)
        self.counts["records compacted away"] += gone
        return gone > 0

    def reclaim(self, who: int, how: int) -> bool:
        """Truncate a partition up to the offset that every queue has done."""
        partition = who % len(self._logs)
        commits = [queue.group.offsets(partition) for queue in self._queues]
        bases = [{} if commit is None else {partition: commit[0]} for commit in commits]
        before = reclaiming.reclaimable(bases).get(partition, 0)
        if before <= self._logs[partition].start:
            return False
        gone = self._logs[partition].delete_records(before)
        for queue in self._queues:
            queue.proof.reclaimed(partition, gone)
        return True

    # ---------------------------------------------------------------- groups

    def notice(self, who: int, how: int) -> bool:
        """Remove a dead or paused member from its group."""
        alive = {member.number for member in self.members if not member.stopped}
        for queue in self._queues:
            number = one_of([number for number in queue.group.members if number not in alive], who)
            if number is not None:
                queue.group.remove(number)
                return True
        return False

    def evict(self, who: int, how: int) -> bool:
        """Remove a live member from its group, as if it had timed out."""
        member = one_of(self.members, who)
        if member is None or member.number not in self._queue_of[member.number].group.members:
            return False
        self._queue_of[member.number].group.remove(member.number)
        return True

    def rebalance(self, who: int, how: int) -> bool:
        """Reassign the partitions of a group."""
        self._queues[who % len(self._queues)].group.rebalance(how % 4)
        return True

    def limit(self, who: int, how: int) -> bool:
        """Move a group to a coordinator with another text limit."""
        group, limits = self._queues[who % len(self._queues)].group, self._setting.broker_limits
        before, group.text_limit = group.text_limit, limits[how % len(limits)]
        return group.text_limit != before

    def expire(self, who: int, how: int) -> bool:
        """Abort a consumer's transaction that has timed out. Usually its consumer is dead."""
        works = self._orphans
        if how % 8 == 0:
            works = works + [member.work.transaction for member in self.members if member.work is not None]
        transaction = one_of([work for work in works if work.open], who)
        if transaction is None:
            return False
        transaction.open = False
        for queue in self._queues:
            queue.group.decided(transaction)
        self._orphans = [orphan for orphan in self._orphans if orphan.open]
        return True

    # ---------------------------------------------------------------- commits in flight

    def deliver(self, who: int, how: int) -> bool:
        """Deliver the next commit once, twice or never, with or without an answer."""
        ways = [(self._queue_of[member.number], member.connection) for member in self.members] + self._adrift
        way = one_of([way for way in ways if way[1].requests or way[1].refused], who)
        if way is None:
            return False
        queue, connection = way
        kind = how % 8
        if kind == 4 or not connection.requests:
            self._send_again(connection)
        if not connection.requests:
            return True
        request = connection.requests.popleft()
        if kind == 3 and self._is_waited_for(request):
            connection.refused.append(request)
            return True
        self._sent.append((queue, request))
        if kind == 0:
            self.counts["commits lost"] += 1
            return True
        if kind == 1:
            queue.group.commit(request)
            self.counts["commits taken twice"] += 1
        answers = queue.group.commit(request)
        for answer in set(answers.values()):
            self.counts[f"commits answered: {answer.value}"] += 1
        if kind == 2:
            self.counts["answers lost"] += 1
        else:
            connection.answers.append((request.flight, answers))
        self._adrift = [(queue, connection) for queue, connection in self._adrift if connection.requests]
        return True

    def _send_again(self, connection: Connection) -> None:
        """Let the client retry the commits that were refused with a retriable error."""
        again = [request for request in connection.refused if self._is_waited_for(request)]
        connection.refused.clear()
        connection.requests += again
        self.counts["commits sent again by the client"] += len(again)

    def _is_waited_for(self, request: Request) -> bool:
        """Return whether the client has reported no outcome yet, and may send the commit again."""
        return any(
            member.number == request.member and request.flight in member.commits._flights for member in self.members
        )

    def stale(self, who: int, how: int) -> bool:
        """Deliver an old commit again."""
        if not self._sent:
            return False
        queue, request = self._sent[(who + 8 * how) % len(self._sent)]
        if queue.group.fenced and queue.group.accepts(request.member, request.epoch, request.offsets):
            return self._arrive_late(queue, request, rejoins=how % 2 > 0)
        queue.group.commit(request)
        return True

    def _arrive_late(self, queue: Queue, request: Request, *, rejoins: bool) -> bool:
        """Deliver a current member's commit again, from a connection that it has lost.

        The member looks at its commits right away, or loses its partitions first and gets all of them back. A crash
        before that, or another owner, could not be repaired.
        """
        members = [one for one in self.members if one.number == request.member and not (one.stopped or one.closing)]
        fits = queue.group.text_limit >= self._setting.options.text_limit
        if not (members and fits):
            return False
        (member,) = members
        transacts = member.core.transaction.excludes_commits or (member.work is not None and member.work.next)
        waits = member.blocked or transacts
        if waits or not member.lives.keys() >= request.offsets.keys():
            return False
        member.commits.doubt()
        queue.proof.late = True
        queue.group.commit(request)
        queue.proof.late = False
        is_decided = None not in map(queue.group.offsets, queue.group.owner)
        rejoins = rejoins and is_decided and queue.group.members == [member.number]
        if rejoins:
            queue.group.remove(member.number)
            while member.heartbeat():
                member.load()
            self.counts["commits late and partitions lost"] += 1
        for _ in range(3):
            if not rejoins:
                member.look()
            self._commit_undisturbed(member)
        for partition in request.offsets:
            queue.proof.mended(partition)
        self.counts["commits late"] += 1
        return True

    def _commit_undisturbed(self, member: Member) -> None:
        """Commit, and deliver the commit and its answer."""
        member.commit()
        connection, group = member.connection, self._queue_of[member.number].group
        self._send_again(connection)
        if not connection.requests and not connection.answers:
            member.time_out()
        while connection.requests:
            request = connection.requests.popleft()
            connection.answers.append((request.flight, group.commit(request)))
        while member.answer():
            pass

    # ---------------------------------------------------------------- browsing

    def browse(self, who: int, how: int) -> bool:
        queue = self._queues[who % len(self._queues)]
        if queue.browser is None:
            queue.browser = Browser(self._logs, queue.group, queue.proof, self.now)
            return True
        if queue.browser.read(1 + how % 4):
            return True
        shown = queue.browser.show()
        if shown:
            queue.browser = None
            self.counts["dumps shown"] += 1
        return shown
