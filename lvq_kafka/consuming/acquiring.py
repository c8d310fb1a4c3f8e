"""Acquiring: taking messages as deliveries, by threads and by tasks of an event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Generic

from lvq_kafka.codecs import Codec, Undecodable, V
from lvq_kafka.consuming.dead_letters import DeadLetters
from lvq_kafka.consuming.delivery import Delivery, Holder
from lvq_kafka.consuming.holdings import Holdings
from lvq_kafka.consuming.takers import Taker
from lvq_kafka.core.lifecycle import State
from lvq_kafka.errors import AlreadySettled, Closed, ConfigError, DecodeError, LockLost

__all__ = ["Acquiring"]


class Acquiring(Generic[V]):
    """Takes messages out of the holdings of a consumer; see `lvq_kafka.consuming.consumer.Consumer` for its options."""

    def __init__(
        self,
        holdings: Holdings,
        dead_letters: DeadLetters,
        codec: Codec[V],
        *,
        undecodable: Undecodable,
        prefetch: int,
    ) -> None:
        self.skipped = 0
        """Messages that were rejected because their values could not be read."""
        self._holdings = holdings
        self._dead_letters = dead_letters
        self._codec = codec
        self._raw = undecodable == "raw"
        self._skips = undecodable == "skip"
        self._prefetch = prefetch

    def acquire(self, most: int, timeout: float | None, holder: Holder) -> list[Delivery[V]]:
        """See `Consumer.acquire_many`; they are settled by the holder."""
        deliveries = self._look(most, None, holder)
        if deliveries:
            return deliveries
        deadline = None if timeout is None else time.monotonic() + timeout
        woken = threading.Event()
        taker = Taker(most, woken.set)
        try:
            while not (deliveries := self._look(most, taker, holder)):
                left = None if deadline is None else deadline - time.monotonic()
                if (left is not None and left <= 0) or not woken.wait(left):
                    break
                woken.clear()
        finally:
            self._holdings.step_out(taker)
        return deliveries

    async def acquire_async(self, most: int, timeout: float | None, holder: Holder) -> list[Delivery[V]]:
        """As `acquire`. There is nothing to wait for between taking and returning, so no cancellation can lose any."""
        deadline = None if timeout is None else time.monotonic() + timeout
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        taker = Taker(most, lambda: loop.call_soon_threadsafe(woken.set))
        try:
            while not (deliveries := self._look(most, taker, holder)):
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    break
                with suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), left)
                woken.clear()
        finally:
            self._holdings.step_out(taker)
        return deliveries

    def iterate(self, holder: Holder) -> Iterator[Delivery[V]]:
        """See `Consumer.__iter__`."""
        ahead: deque[Delivery[V]] = deque()
        try:
            while True:
                ahead.extend(self.acquire(self._prefetch, None, holder))
                yield ahead.popleft()
                while (delivery := self._next(ahead)) is not None:
                    yield delivery
        except Closed:
            return
        finally:
            self._give_back(ahead)

    async def iterate_async(self, holder: Holder) -> AsyncIterator[Delivery[V]]:
        """As `iterate`."""
        ahead: deque[Delivery[V]] = deque()
        try:
            while True:
                ahead.extend(await self.acquire_async(self._prefetch, None, holder))
                yield ahead.popleft()
                while (delivery := self._next(ahead)) is not None:
                    yield delivery
        except Closed:
            return
        finally:
            self._give_back(ahead)

    def _look(self, most: int, taker: Taker | None, holder: Holder) -> list[Delivery[V]]:
        """What can be had now. Nothing means that the taker will be woken."""
        if most < 1:
            raise ConfigError(f"most={most!r} is out of range.", options=["most"], hint="At least 1.")
        while True:
            haul = self._holdings.take(most, taker)
            if haul.exhausted:
                self._dead_letters.take_exhausted(haul.exhausted)
            codec, raw = self._codec, self._raw
            deliveries = [Delivery(holder, item, life, codec, raw) for item, life in haul.taken]
            if self._skips:
                deliveries = [delivery for delivery in deliveries if self._is_readable(delivery)]
            if deliveries or not (haul.taken or haul.exhausted):
                return deliveries

    def _is_readable(self, delivery: Delivery[V]) -> bool:
        try:
            delivery.value  # noqa: B018  # decodes
        except DecodeError as error:
            self.skipped += 1
            with suppress(LockLost):  # then whoever has the partition now skips it
                delivery.reject(str(error))
            return False
        return True

    def _next(self, ahead: deque[Delivery[V]]) -> Delivery[V] | None:
        """The next one that is still newest of its key. One that is not makes room for the value that replaced it."""
        while ahead:
            delivery = ahead.popleft()
            if delivery.state is State.ACQUIRED:
                return delivery
            self._give_back([delivery])
        return None

    def _give_back(self, deliveries: deque[Delivery[V]] | list[Delivery[V]]) -> None:
        """Let go of those that nobody has seen."""
        for delivery in deliveries:
            with suppress(LockLost, AlreadySettled):
                delivery.release()
