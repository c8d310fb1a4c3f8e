"""Producers that keep to the options of their queue as it is altered (R39)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import Any
from weakref import ref

from lvq_kafka.admitting.gates import AdmissionGate
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.limits import Limits
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.declared.registry_watch import RegistryWatch
from lvq_kafka.errors import LVQError
from lvq_kafka.producing.producer import Gate, Producer

__all__ = ["follow_alterations"]

logger = logging.getLogger("lvq_kafka.limits")

_AGAIN = 5.0  # seconds until limits that could not be applied are tried again


def follow_alterations(
    producer: Producer[Any],
    watch: RegistryWatch,
    definition: QueueDefinition,
    open_gate: Callable[[QueueDefinition], Gate | None],
) -> None:
    """Keep a producer to the options of its queue.

    Args:
        producer: the producer.
        watch: notices alterations of the queue.
        definition: the options that the producer was opened with.
        open_gate: returns an open gate for a queue with these options; None if its limits ask for none.
    """
    follower = _Alterations(producer, watch, definition, open_gate)
    producer._on_close(follower.leave)  # which keeps the follower alive for as long as the producer
    watch.follow(follower)
    follower.altered()  # while the gate was opened, perhaps


class _Alterations:
    """See `follow_alterations`. It does not keep its producer alive."""

    def __init__(
        self,
        producer: Producer[Any],
        watch: RegistryWatch,
        definition: QueueDefinition,
        open_gate: Callable[[QueueDefinition], Gate | None],
    ) -> None:
        self._producer = ref(producer)
        self._watch = watch
        self._definition = definition
        self._open_gate = open_gate
        self._one_at_a_time = Lock()
        self._left = Event()

    def altered(self) -> None:
        """See `Follows.altered`.

        Nothing is sent under the name of another queue. Limits take some time to apply: they count what is in the
        queue.
        """
        if (producer := self._producer()) is not None:
            producer._turn_away(self._watch.ended)
        if self._watch.in_force != self._definition:
            Thread(target=self._adopt, name=f"lvq-altered-{self._definition.name}", daemon=True).start()

    def leave(self) -> None:
        """Stop following: the producer is closed."""
        self._left.set()
        self._watch.leave(self)

    def _adopt(self) -> None:
        with self._one_at_a_time:
            while not self._left.is_set():
                producer, definition = self._producer(), self._watch.in_force
                if producer is None or definition == self._definition:
                    return
                try:
                    gate = self._gate(producer._gate, definition)
                except LVQError as error:
                    logger.warning(
                        "the producer of %s does not keep to the altered limits yet: %s", definition.name, error
                    )
                    del producer
                    self._left.wait(_AGAIN)
                    continue
                producer._adopt(QueueRules.of(definition), gate)
                self._definition = definition
                if self._left.is_set() and gate is not None:
                    gate.close()

    def _gate(self, gate: Gate | None, definition: QueueDefinition) -> Gate | None:
        """Return the gate for the altered limits.

        Senders may wait at the gate so far, so that one stays: with other limits, or with none.
        """
        if definition.limits == self._definition.limits:
            return gate
        if not isinstance(gate, AdmissionGate):
            return self._open_gate(definition)
        gate.adopt(definition.limits if _admits(definition.limits) else None)
        if _admits(definition.limits):
            return gate
        return self._open_gate(definition) or gate


def _admits(limits: Limits | None) -> bool:
    return limits is not None and limits.policy in ("reject", "block")
