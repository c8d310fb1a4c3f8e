"""The options of a consumer, and those that only readers have (R27)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypedDict

from lvq_kafka.codecs import Undecodable
from lvq_kafka.declared.group_checks import OnForeignCommits
from lvq_kafka.errors import ConfigError

__all__ = ["SELECTING", "ConsumerOptions", "refuse_selecting"]


class ConsumerOptions(TypedDict, total=False):
    """The options of a consumer.

    Attributes:
        undecodable: what to do with a value that the codec cannot decode: raise when it is accessed, reject and skip
            the message, or return the raw bytes.
        max_in_work: the number of messages that may be held at a time, across all threads. Beyond that, `acquire`
            waits.
        prefetch: the number of messages an iteration takes at a time. A prefetched message that is superseded before
            its turn is skipped, so each one is the newest of its key when it is yielded, regardless of the number.
            Values above 1 withhold messages from other threads of this consumer, and save time with ``durable_counts``,
            where each batch costs a commit. Prefetched messages that never get their turn do not count as delivered.
        lock_timeout: seconds to settle a delivery in. After that the message is released and the handle becomes
            invalid. None means as long as the membership lasts. `Delivery.extend` asks for more time. A prefetched
            message is returned after waiting this long for its turn; once it is handed out, the full time starts.
        max_deliveries: how often a message may be delivered. The next attempt rejects it instead. Without
            ``durable_counts`` each consumer counts on its own. Only messages that were actually handed out count. None
            leaves it to the queue's own `QueueOptions`, by which all its consumers count durably.
        dead_letters: the topic that rejected messages go to. Dead letters have the headers of
            `lvq_kafka.consuming.dead_letters`. None stands for the queue's own topic; if there is none, messages are
            dropped. A dead letter is stored before its message counts as done. If it cannot be stored, the message
            becomes available again a second later.
        durable_counts: commit each message's delivery count before handing it out, so that a message that kills its
            handler is counted, too. Each acquire costs a commit: use `acquire_many`, ``prefetch`` or several workers.
            If the process dies, prefetched messages, and messages counted for a caller that never collected them, count
            as delivered, too: keep ``prefetch`` at 1 if messages can kill their handlers.
        commit_interval: seconds over which acks are batched into one commit. If someone is waiting, the commit is sent
            at once.
        revoke_grace: seconds that holders get to finish when the group moves a partition to another consumer.
        on_foreign_commits: what to do when another client has committed with the queue's group: ``"refuse"`` raises;
            ``"ignore"`` uses the offsets alone, so messages may be redelivered.
        auto_reclaim: seconds between deletions from the topic of what all its queues have consumed, for good. This is
            `LastValueQueue.reclaim`, in a thread of its own, and needs the right Delete on the topic. If it fails,
            ``stats.trouble`` says why, and the log once. None keeps everything.
        page_directory: the directory for values beyond the limits of a queue whose policy is disk. They are in
            temporary files, which nobody else can open (R12). None stands for the directory of `tempfile.gettempdir`.
    """

    undecodable: Undecodable
    max_in_work: int
    prefetch: int
    lock_timeout: float | None
    max_deliveries: int | None
    dead_letters: str | None
    durable_counts: bool
    commit_interval: float
    revoke_grace: float
    on_foreign_commits: OnForeignCommits
    auto_reclaim: float | None
    page_directory: str | os.PathLike[str] | None


_BY_TIME = (
    "Read with queue.browser({option}=...), or declare another queue on the topic with start=..., and consume that."
)
_BY_VALUE = (
    "Declare another queue on the topic with selector=..., and consume that, or read with queue.browser({option}=...)."
)
_REMEDIES = {
    **dict.fromkeys(("dump", "replay_period"), _BY_TIME),
    **dict.fromkeys(("headers", "keys", "partitions", "prefix", "selector", "where"), _BY_VALUE),
}

SELECTING = frozenset(_REMEDIES)
"""The options that `refuse_selecting` refuses."""


def refuse_selecting(options: Mapping[str, object]) -> None:
    """Refuse the options that select among a queue's messages.

    Raises:
        ConfigError: there is such an option.
    """
    for option, remedy in _REMEDIES.items():
        if option in options:
            raise ConfigError(
                f"A consumer cannot have {option}: all consumers of a queue share one record of what was consumed, so "
                "messages that one of them leaves out would keep it from advancing, or be lost for the others.",
                options=[option],
                hint=remedy.format(option=option),
            )
