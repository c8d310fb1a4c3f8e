"""What the receipts of all logs have in common: they can be awaited, and say alike that time is up."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lvq_kafka.errors import OutcomeUnknown
from lvq_kafka.forking import Bound

if TYPE_CHECKING:
    from lvq_kafka.cluster import Receipt
    from lvq_kafka.core.records import Position

__all__ = ["AwaitableReceipt", "undecided"]


class AwaitableReceipt(Bound):
    """Makes ``await receipt`` the position, or the error that ``result`` would raise.

    Without state of its own, since one receipt is made for each message. A task that is cancelled while it awaits ends
    its waiting, and not the send.
    """

    __slots__ = ()

    elsewhere = "Wait for it here, and send the position."

    def __await__(self: Receipt) -> Generator[Any, None, Position]:
        if not self.done():
            loop = asyncio.get_running_loop()
            decided = asyncio.Event()

            def wake(_: Receipt) -> None:
                with suppress(RuntimeError):  # the loop is closed already: nobody waits any more
                    loop.call_soon_threadsafe(decided.set)

            self.add_done_callback(wake)
            yield from decided.wait().__await__()
        return self.result(0)


def undecided(timeout: float | None) -> OutcomeUnknown:
    """The error of who has waited for a receipt for so many seconds, and in vain."""
    return OutcomeUnknown(
        f"The message was neither stored nor refused within {timeout or 0:g} s.",
        hint="It may yet be stored: ask the receipt again, or give it more time.",
    )
