"""Common parts of all receipts: awaiting them, and the timeout error."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lvq_kafka.core.text.validation import function
from lvq_kafka.errors import OutcomeUnknown
from lvq_kafka.runtime.forking import Bound

if TYPE_CHECKING:
    from lvq_kafka.cluster import Receipt
    from lvq_kafka.core.facts import Position

__all__ = ["AwaitableReceipt", "check_callback", "undecided"]


class AwaitableReceipt(Bound):
    """Makes ``await receipt`` return the position, or raise the error that ``result`` raises.

    Has no state, since one receipt is created per message. Cancelling a task that awaits it ends the wait, not the
    send.
    """

    __slots__ = ()

    elsewhere = "Wait for it here, and send the position."

    def __await__(self: Receipt) -> Generator[Any, None, Position]:
        if not self.done():
            loop = asyncio.get_running_loop()
            decided = asyncio.Event()

            def wake(_: Receipt) -> None:
                with suppress(RuntimeError):  # the loop is already closed: no one is waiting
                    loop.call_soon_threadsafe(decided.set)

            self.add_done_callback(wake)
            yield from decided.wait().__await__()
        return self.result(0)


def check_callback(callback: object) -> None:
    """Check what `Receipt.add_done_callback` is given.

    Raises:
        ConfigError: it is not a plain function of one argument.
    """
    function("callback", callback, "receipt", hint="In asyncio: await the receipt.", classes=False)


def undecided(timeout: float | None) -> OutcomeUnknown:
    """Return the error for a receipt that was not decided within the timeout."""
    return OutcomeUnknown(
        f"The message was neither stored nor refused within {timeout or 0:g} s.",
        hint="It may still be stored: ask the receipt again, or allow more time.",
    )
