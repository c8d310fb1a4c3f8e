"""A cluster, its consumers and its accidents, simulated, to prove the consume protocol.

The simulator alone keeps the truth (`proof`); the rules under test are those of `lvq_kafka.core`: its
`ConsumerCore` as it is shipped, driven in the engine's order (`member`). The invariants are named as follows, and
every check names the one that it is about.

- **I1 truth**: what a commit that was ever sent says is done was acked, rejected, superseded, deleted, or is a gap.
- **I2 exclusive**: within an assignment a message has one holder, and a key one message in work; no handle outlives it.
- **I3 durable ack**: what was reported durable is held as done by the group, and is not handed out again.
- **I4 conflation**: a message that is handed out is the newest of its key that was read, and reading went at least to
  the end that was seen when the partition was assigned.
- **I5 no step back**: after a newer value of its key was reported durable, no older one is handed out.
- **I6 order**: within an assignment the values of a key are handed out in the order of the log. It follows from I4:
  what was newest when it was handed out is never newer than what is newest later, since a log is read in its order. So
  nothing breaks I6 alone. It is checked before I4, to call a step back by its name, and stands should I4 err.
- **I7 browser, soundness**: a dump shows only what was newest when it was read and was not consumed.
- **I8 browser, completeness**: a dump shows every key that has a value and was not consumed.
- **I9 bound**: no commit is longer than allowed; and what it has room for it says.
- **I10 convergence**: when producers stop and holders settle, one member that stays consumes everything to the end, and
  everyone who asked it whether an ack is durable has an answer.
- **I11 codec**: a commit can be read back as it was written, and says done of what was acked, pending of what was not.
- **I12 reclaim**: no record goes before it is done for every queue on the topic.
- **I13 once**: a message is in the output of one committed transaction at most.
- **I14 counted**: with durable counts, no delivery is forgotten. With or without them none is made up, but by a crash
  between the count and the delivery: the last commit before a partition is given up counts what somebody has got.
- **I15 lease**: nothing is handed out by one who has not sent a commit for long that the group is known to have
  accepted, or found too long: it judges the member first. Others may have the partition.
- **I16 last word**: where the last commit before a partition is given up is stored, it says done of every ack that was
  accepted and for which the text has room.
- **I17 no starvation**: who asks for a message gets one, if there is any that may be handed out: whatever is held, or
  delayed, or fails always, and however full the commit text is. Only where transactions are used, which commit all or
  nothing, messages wait for room.

I3, I5, I13 and I14 need the broker's fencing, and hold only where it is on. The others hold in any case.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quietly"]


@contextmanager
def quietly() -> Iterator[None]:
    """Log nothing of what consumers have to say."""
    logger = logging.getLogger("lvq_kafka.consumer")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
