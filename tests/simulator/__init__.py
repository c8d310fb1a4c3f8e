"""A simulated cluster with consumers and failures, to prove the consume protocol.

Only the simulator knows the truth (`proof`). The rules under test are those of `lvq_kafka.core`: the `ConsumerCore`
that ships, driven in the engine's order (`member`). Every check names its invariant:

- **I1 truth**: any offset that a sent commit marks done was acked, rejected, evicted, superseded or deleted,
  or is a gap.
- **I2 exclusive**: within an assignment, a message has one holder and a key has one message in work. No handle outlives
  the assignment.
- **I3 durable ack**: the group keeps as done every ack that was reported durable. The message is not handed out again.
- **I4 conflation**: a message that is handed out is the newest of its key that was read. Reading has reached at least
  the end that was seen when the partition was assigned.
- **I5 no step back**: once the ack of a newer value was reported durable, no older value of its key is handed out.
- **I6 order**: within an assignment, the values of a key are handed out in log order. This follows from I4, because a
  log is read in order, so nothing can break I6 alone. It is checked before I4 to give a step back its proper name, and
  as a safeguard if the check of I4 is wrong.
- **I7 browser, soundness**: a dump shows only values that were newest when they were read and were not consumed.
- **I8 browser, completeness**: a dump shows every key that has a value and was not consumed.
- **I9 bound**: no commit exceeds the allowed length, and a commit leaves nothing out that it has room for.
- **I10 convergence**: after producers stop and holders settle, one remaining member consumes everything to the end. All
  its waiters for durable acks get an answer.
- **I11 codec**: a commit decodes to what was encoded. It marks acked offsets done, and others pending.
- **I12 reclaim**: no record is deleted before every queue on the topic is done with it.
- **I13 once**: a message is in the output of at most one committed transaction.
- **I14 counted**: with durable counts, no delivery is forgotten. With or without them, only a crash between the count
  and the delivery adds one: the last commit before a partition is given up counts only actual deliveries.
- **I15 lease**: a consumer hands out messages only if the group has accepted a commit that it sent recently, or refused
  it merely as too large, since the group checks the member first. Otherwise another member may own the partition.
- **I16 last word**: if the last commit before a partition is given up is stored, it marks done every ack that was
  accepted and that the text has room for.
- **I17 no starvation**: a caller gets a message if there is one to hand out, no matter what is held, delayed, scheduled
  or always failing, and no matter how full the commit text is. Messages wait for room only where transactions are used,
  because those commit all or nothing, and in a queue by rank while some of their partition are in work, or have room
  and are other sessions'; and then that is reported. So all that is due is consumed while something stays scheduled or
  delayed.
- **I18 expiry**: nothing comes to a holder after its time, by its consumer's clock and the newest append time read.
  A value that has expired is done, and so is everything that it replaced: I1, I4 and I10 hold with that.
- **I19 expiry topic**: only what has expired is written there, by its owner, and no value whose successor was durably
  acked when it expired. With an expiry topic, what has expired is done only once it was stored there (I1), and all of
  it is in the end (I10).
- **I20 schedule**: nothing is handed out before it is due, by its consumer's clock and the newest append time read.
  No scheduled message is done before it has counted for some consumer, nor truncated (I1, I11, I12). The value below it
  counts until then, and may be handed out (I4); all of it is consumed in the end (I10).
- **I21 groups**: the messages of a group are in work for one session of a consumer at a time. A sticky group is the
  session's that received its first message, until that ends.
- **I22 order in groups**: no message is handed out while one of its group waits that counts since an earlier time, or
  as long and lies below it, delayed or not. Not where messages wait for room, of which the lowest needs none.
- **I23 ring**: only waiting messages are evicted, the lowest first, and only if a ring would otherwise hold more than
  its share after a new key came or a message came back; an update of a key evicts nothing. A message that has expired
  in work takes no room, and is not evicted when it comes back. From then on an evicted message is as an acked one: done
  in every claim (I11), in the last commit (I16), and durable once that is reported (I3); its assignment never hands it
  out.
- **I24 ranks**: in a ranked queue, a message is handed out only if none of better rank could be, unless the
  stats count it.
- **I25 order**: no message is handed out while one without a group waits that counts since an earlier time, or as long
  and lies below it in its partition. Not what came back, which may be delayed, or take turns. In a queue in place, all
  this goes by the record that gives the key its place: the first of its values since it was last gone.
- **I26 in place**: while a message waits, no claim marks done the record that gives its key its place, unless the stats
  count that the text had no room.

I3, I5, I13, I14 and I19 need the broker's fencing and hold only with it. The others always hold.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quietly"]


@contextmanager
def quietly() -> Iterator[None]:
    """Suppress the log messages of consumers."""
    logger = logging.getLogger("lvq_kafka.consumer")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
