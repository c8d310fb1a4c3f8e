"""Producers that nobody closes: they are flushed all the same, and say so."""

from __future__ import annotations

import logging
import warnings
from _thread import start_new_thread
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol
from weakref import finalize, ref

from lvq_kafka.cluster import LogWriter
from lvq_kafka.errors import DeliveryUnknown, LVQError, OutcomeUnknown, TransportError
from lvq_kafka.runtime.aio import in_background
from lvq_kafka.runtime.exiting import ended, finish_at_exit, is_open
from lvq_kafka.runtime.unclosed import opened_at

__all__ = ["UnclosedProducer", "in_one_line", "verdict"]

logger = logging.getLogger("lvq_kafka.producer")


class _Refusing(Protocol):
    def _refuse_more(self) -> None: ...


class UnclosedProducer:
    """A producer from its opening until it is closed. It does not keep the producer alive.

    Receipts do not need their producer, so it is closed as soon as no one can send with it any more.

    Args:
        producer: the producer.
        writer: what it writes with.
        topic: the topic, for messages.
        shut: called when the writer is closed.
    """

    def __init__(self, producer: _Refusing, writer: LogWriter, topic: str, shut: Callable[[], object]) -> None:
        self._producer = ref(producer)
        self._writer = writer
        self._topic = topic
        self._shut = shut
        self._place = opened_at()
        finalize(producer, self._abandon).atexit = False
        finish_at_exit(self)

    def end(self) -> None:
        """Note that it is closed."""
        ended(self)

    def log(self, error: BaseException) -> None:
        """Log an error of closing it that nobody is there to see."""
        logger.error("the producer of %s, closed in the background: %s", self._topic, in_one_line(error))

    # ------------------------------------------------------------ dropped

    def _abandon(self) -> None:
        """Close the writer in the background.

        Python calls this wherever it collects garbage, on any thread and under any lock. So it takes no lock, not even
        that of the list of threads.
        """
        if is_open(self):
            with suppress(RuntimeError):  # the interpreter exits, and then finishes it
                start_new_thread(self._close_in_background, ())
            warnings.warn(f"unclosed producer of {self._topic}: {self._place}", ResourceWarning, stacklevel=2)

    def _close_in_background(self) -> None:
        with suppress(RuntimeError):  # likewise
            in_background(self._close)

    def _close(self) -> None:
        logger.warning(
            "closing the producer of %s, which was dropped without being closed: %s. Use a with block, or close it",
            self._topic,
            self._place,
        )
        uncommitted = self._writer.uncommitted
        # Messages on their way are decided within delivery.timeout.ms, as if the producer were still there. An open
        # transaction can only be aborted.
        try:
            undecided = self._writer.close(None if uncommitted is None else 0.0)
        finally:
            self._shut()
        self.end()
        if uncommitted is not None:
            self._writer.pop_failures()
            if uncommitted:
                logger.error("%s", self._of_transaction(uncommitted, "was aborted"))
            return
        if (error := verdict(self._writer.pop_failures(), undecided, None, self._topic)) is not None:
            self.log(error)

    # ------------------------------------------------------------ at exit

    def refuse_more(self) -> None:
        """See `Unfinished`."""
        if (producer := self._producer()) is not None:
            producer._refuse_more()

    def finish(self, timeout: float) -> list[str]:
        """See `Unfinished`."""
        uncommitted = self._writer.uncommitted
        if uncommitted is not None:
            return self._abort(uncommitted, timeout)
        undecided = self._writer.flush(timeout)
        left = []
        if undecided:
            left.append(
                f"{_messages(undecided, self._topic)} may be lost: not acknowledged when the program ended. Close the "
                f"producer, or use a with block: {self._place}."
            )
        if (error := verdict(self._writer.pop_failures(), 0, None, self._topic)) is not None:
            left.append(in_one_line(error))
        return left

    def _abort(self, uncommitted: int, timeout: float) -> list[str]:
        became = "may not be committed: the program ended within it"
        with suppress(LVQError):
            self._writer.abort_transaction(timeout)
            became = "was aborted: the program ended within it"
        self._writer.pop_failures()  # sends withdrawn by the abort are expected failures
        return [self._of_transaction(uncommitted, became)] if uncommitted else []

    def _of_transaction(self, uncommitted: int, became: str) -> str:
        return f"A transaction of {_messages(uncommitted, self._topic)} {became}. Its producer: {self._place}."


def verdict(
    failures: Sequence[TransportError], undecided: int, timeout: float | None, topic: str
) -> TransportError | OutcomeUnknown | None:
    """Return the error that tells of messages not stored, or perhaps not; None if all are.

    Args:
        failures: those that nobody has seen.
        undecided: the number of messages that were not decided within ``timeout`` seconds.
    """
    if failures:
        unknown = sum(isinstance(failure, DeliveryUnknown) for failure in failures[1:])
        refused = len(failures) - 1 - unknown
        were = "was" if refused == 1 else "were"
        for number, what in ((refused, f"{were} not stored"), (unknown, "may have been stored")):
            if number:
                failures[0].add_note(f"{_counted(number, 'more message')} for {topic!r} {what}.")
        return failures[0]
    if undecided:
        within = "" if timeout is None else f" within {timeout:g} s"
        return OutcomeUnknown(
            f"{_messages(undecided, topic)} not acknowledged{within}.",
            hint="Allow more time, or check whether the brokers can be reached.",
        )
    return None


def in_one_line(error: BaseException) -> str:
    """Return an error with its notes."""
    return " ".join([str(error), *getattr(error, "__notes__", [])])


def _messages(number: int, topic: str) -> str:
    return f"{_counted(number, 'message')} for {topic!r}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
