"""Last-value durables and key/value maps, as TIBCO FTL has them (R21).

A durable is a queue that is not consumed, whose key header is the key field, and whose selector is the other clauses of
the content matcher. A subscriber reads one of its keys.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Any, Generic, Self

from lvq_kafka.cluster import Cluster
from lvq_kafka.codecs import BYTES, Codec, T, V
from lvq_kafka.core.facts import Position
from lvq_kafka.core.log.keys import Key
from lvq_kafka.core.queue.content_matcher import ContentMatcher
from lvq_kafka.core.queue.definition import QueueDefinition, is_name
from lvq_kafka.core.queue.headers import check_key_header
from lvq_kafka.core.queue.settings_by_pattern import DYNAMIC_DURABLES, matching
from lvq_kafka.core.text.quoting import quoted, shell_word
from lvq_kafka.core.text.validation import text, waiting
from lvq_kafka.declared.registry import Registry
from lvq_kafka.declared.setting_store import SettingStore
from lvq_kafka.errors import (
    ConfigError,
    DynamicDurablesDisabled,
    IncompatibleMatcher,
    QueueMismatch,
    QueueNotDeclared,
    Unauthorized,
)
from lvq_kafka.kafka import ClientConfig
from lvq_kafka.kafka.connecting import connect_within
from lvq_kafka.managing.feeding import feed_name
from lvq_kafka.queue import LastValueQueue
from lvq_kafka.reading.entries import Entry
from lvq_kafka.runtime.forking import Bound
from lvq_kafka.runtime.keywords import refuse_unknown

__all__ = ["DurableMap", "Subscription", "open_map", "subscribe"]

logger = logging.getLogger("lvq_kafka.durables")


@refuse_unknown()
def subscribe(
    endpoint: str,
    durable: str,
    matcher: str | Mapping[str, Any] | None,
    key_field: str | None = None,
    *,
    value: Codec[T] | type[T] = BYTES,  # type: ignore[assignment]  # the default of T
    bootstrap_servers: str | None = None,
    config: ClientConfig | Mapping[str, Any] | None = None,
    cluster: Cluster | None = None,
) -> Subscription[T]:
    """Subscribe to one key of a last-value durable: its current value, then each newer one.

    Without a ``key_field``, the durable is static: somebody has declared it. With one, it is dynamic: if it does not
    exist, it is created, for any value of the key field and for the other clauses of the matcher, if a setting of the
    endpoint allows that: ``lvq settings set ENDPOINT -o dynamic-durables=true``. Its topic is fed from
    the endpoint: ``lvq feed ENDPOINT DURABLE``, or `LastValueQueue.feed`.

    Args:
        endpoint: the topic that publishers write to. If it is the durable's own topic, nothing has to feed it.
        durable: the name of the durable; or a subscriber name, which is another queue on the durable's topic.
        matcher: the content matcher, as JSON or as a mapping: ``{"Symbol": "IBM", "Exchange": "NYSE"}``. A string is
            the value of a field, ``true`` stands for any. One clause names the key. The others have to mean what the
            durable's do. With None, a dynamic durable is created, for its key field alone, and then `NoKeyTest` is
            raised.
        key_field: the header, or the field of a JSON body, by whose value messages replace each other.
        value: the codec of values.
        bootstrap_servers: where the durable is; see `connect`.
        config: how to connect; see `connect`.
        cluster: an open cluster instead. You remain responsible for closing it.

    Raises:
        ConfigError: a name, or the matcher, is malformed.
        NoKeyTest: the matcher names no value of the key field.
        NotAString: a clause is neither a string nor ``true``.
        QueueNotDeclared: there is no such durable, and no ``key_field`` to create it with.
        DynamicDurablesDisabled: there is none, and no setting of the endpoint lets subscribers create one
            (``dynamic-durables``), or this user lacks a right for it.
        QueueMismatch: there is a queue of that name which is no durable, or has another key field.
        IncompatibleMatcher: the durable has other messages than the matcher asks for.
        MissingExtra: there are clauses beside the key's, and the extra ``selectors`` is not installed.
        TransportError: the cluster cannot be reached or refuses.
    """
    _check_names(endpoint, durable, key_field)
    asked = ContentMatcher.of({} if matcher is None else matcher)
    if key_field is not None and matcher is not None:
        asked.key(key_field)  # before anything is created
    with ExitStack() as opened:
        cluster = connect_within(opened, bootstrap_servers, config=config, cluster=cluster)
        queue = opened.enter_context(_opened(cluster, endpoint, durable, asked, key_field, value))
        key = asked.key(str(queue.key_header))
        _warn_if_not_fed(cluster, endpoint, queue.definition)
        return Subscription(queue, key, opened)


@refuse_unknown()
def open_map(
    endpoint: str,
    durable: str,
    key_field: str | None = None,
    *,
    value: Codec[T] | type[T] = BYTES,  # type: ignore[assignment]  # the default of T
    bootstrap_servers: str | None = None,
    config: ClientConfig | Mapping[str, Any] | None = None,
    cluster: Cluster | None = None,
) -> DurableMap[T]:
    """Open a durable as a map of keys and values, and read it to its end.

    Takes the arguments of `subscribe`, and raises its errors. A durable whose matcher has clauses beside the key's
    cannot be a map (`IncompatibleMatcher`): what is set has no other fields.

    Raises:
        CatchUpTimeout: reading takes more than a minute.
    """
    _check_names(endpoint, durable, key_field)
    with ExitStack() as opened:
        cluster = connect_within(opened, bootstrap_servers, config=config, cluster=cluster)
        queue = opened.enter_context(_opened(cluster, endpoint, durable, ContentMatcher.of({}), key_field, value))
        return DurableMap(queue, opened)


class _Opened(Bound):
    """A durable that is open, with its connection."""

    _opened: ExitStack

    def close(self) -> None:
        """Close it, and the connection unless the cluster was passed in."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Subscription(_Opened, Generic[V]):
    """One sub-stream of a durable: the messages of one key.

    Iteration yields the current value at once, if there is one, then each newer one. A slow subscriber may miss those
    in between, and gets the newest (G3). Nothing is acknowledged, and nothing leaves the durable.

    ::

        with durables.subscribe("trades", "ticker", {"Symbol": "IBM"}) as subscription:
            for message in subscription:
                print(message.value)
    """

    def __init__(self, queue: LastValueQueue[V], key: str, opened: ExitStack) -> None:
        self.durable = queue.definition
        """The definition of the durable."""
        self.key = key
        """The value of the key field."""
        self._browser = opened.enter_context(queue.browser(keys=[key], default_filters=False))
        self._opened = opened.pop_all()  # takes over the duty to close

    def receive(self, timeout: float | None = None) -> Entry[V] | None:
        """Wait for the next message; return None if there is none within ``timeout`` seconds."""
        limit = waiting(timeout)
        deadline = None if limit is None else time.monotonic() + limit
        while True:
            event = self._browser.poll(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if event is None or isinstance(event, Entry):
                return event

    def __iter__(self) -> Iterator[Entry[V]]:
        return (event for event in self._browser if isinstance(event, Entry))

    def __repr__(self) -> str:
        return f"<Subscription to {quoted(self.key)} of {self.durable.name}>"


class DurableMap(_Opened, Mapping[str, V], Generic[V]):
    """A durable as a map: what `set` has stored is there for all who read it.

    It is a mapping of keys to current values, kept current in this process. There is no lock: a log has no
    compare-and-set, so give each key one writer.

    ::

        with durables.open_map("limits", "limits", "Desk", value=TEXT) as limits:
            limits.set("rates", "5000000")
            print(limits.get("rates"))
    """

    def __init__(self, queue: LastValueQueue[V], opened: ExitStack) -> None:
        self.durable = queue.definition
        """The definition of the durable."""
        self._view = opened.enter_context(queue.view())
        self._producer = opened.enter_context(queue.producer())
        self._opened = opened.pop_all()  # takes over the duty to close

    def set(self, key: Key, value: V, timeout: float | None = 30.0) -> None:
        """Set the value of a key, and wait until this map shows it, or a newer one.

        Raises:
            DeliveryFailed, DeliveryUnknown: it was not stored, or may not have been.
            OutcomeUnknown, CatchUpTimeout: it is not stored, or not visible, within ``timeout`` seconds, and still may
                be.
        """
        self._wait(self._producer.put(key, value).result(timeout), timeout)

    def remove(self, key: Key, timeout: float | None = 30.0) -> None:
        """Remove a key, if it is there, and wait as `set` does. Raises what `set` raises."""
        self._wait(self._producer.delete(key).result(timeout), timeout)

    def _wait(self, position: Position, timeout: float | None) -> None:
        self._view.wait_for(position, timeout)

    def __getitem__(self, key: str) -> V:
        return self._view[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._view)

    def __len__(self) -> int:
        return len(self._view)

    def __repr__(self) -> str:
        return f"<DurableMap {self.durable.name}>"


def _check_names(endpoint: object, durable: object, key_field: str | None) -> None:
    """Check what names a topic or a header.

    Raises:
        ConfigError: one of them cannot.
    """
    for option, given in (("endpoint", endpoint), ("durable", durable)):
        if not is_name(given):
            raise ConfigError(f"`{option}` cannot be the name of a topic.", options={option: given})
    if key_field is not None:
        check_key_header(text("key_field", key_field))


def _opened(
    cluster: Cluster, endpoint: str, name: str, asked: ContentMatcher, key_field: str | None, value: Codec[T] | type[T]
) -> LastValueQueue[T]:
    """Open the durable that has the messages asked for; create it if that is allowed."""
    try:
        queue = LastValueQueue.open(name, value=value, cluster=cluster)
    except QueueNotDeclared as missing:
        if key_field is None:
            raise QueueNotDeclared(
                f"No durable {name} is declared.",
                queue=name,
                hint=f"Declare it: lvq declare {shell_word(name)} --key-header NAME --non-destructive. Or give its "
                "`key_field`, to create it.",
            ) from missing
        queue = _created(cluster, endpoint, name, asked, key_field, value)
    definition = queue.definition
    _check_kind(definition, key_field)
    wanted, has = asked.generalized(str(definition.key_header)), ContentMatcher.of_queue(definition)
    if wanted != has:
        declared = f"with the selector {quoted(definition.selector)}" if has is None else f"for {has}"
        raise IncompatibleMatcher(
            f"The durable {name} was declared {declared}, and not for {wanted}.",
            queue=name,
            declared=str(definition.selector if has is None else has),
            asked=str(wanted),
            hint="Ask with the same clauses, except for the value of the key field; or name another durable.",
        )
    return queue


def _created(
    cluster: Cluster, endpoint: str, name: str, asked: ContentMatcher, key_field: str, value: Codec[T] | type[T]
) -> LastValueQueue[T]:
    """Create a dynamic durable. If somebody else was faster, return what they have declared.

    Raises:
        DynamicDurablesDisabled: no setting of the endpoint allows that, or this user lacks a right.
    """
    try:
        if not _dynamic(cluster, endpoint):
            raise DynamicDurablesDisabled(
                f"There is no durable {name}, and subscribers of the endpoint {endpoint} may not create one.",
                queue=name,
                endpoint=endpoint,
                hint=f"Allow it: lvq settings set {endpoint} -o {DYNAMIC_DURABLES}=true. Or have it declared.",
            )
        return LastValueQueue.declare(
            name,
            key_header=key_field,
            keyless="refuse",
            non_destructive=True,
            selector=asked.generalized(key_field).selector(key_field),
            value=value,
            cluster=cluster,
        )
    except Unauthorized as error:
        raise DynamicDurablesDisabled(
            f"There is no durable {name}, and this user may not create one for the endpoint {endpoint}: {error}",
            queue=name,
            endpoint=endpoint,
            hint="Have it declared, or have the right granted.",
        ) from error
    except QueueMismatch:
        return LastValueQueue.open(name, value=value, cluster=cluster)


def _dynamic(cluster: Cluster, endpoint: str) -> bool:
    """Return whether the settings of an endpoint allow dynamic durables."""
    settings = matching(SettingStore(cluster).all(), endpoint)
    said = (setting.options[DYNAMIC_DURABLES] for setting in settings if DYNAMIC_DURABLES in setting.options)
    return next(said, False) is True


def _check_kind(definition: QueueDefinition, key_field: str | None) -> None:
    """Check that a queue is a last-value durable with this key field.

    Raises:
        QueueMismatch: it is not.
    """
    key_header = definition.key_header
    differences: dict[str, tuple[object, object]] = {}
    if key_header is None or (key_field is not None and key_header != key_field):
        differences["key_header"] = (key_header, key_field)
    if not definition.conflate:
        differences["conflate"] = (False, True)
    if not definition.non_destructive:
        differences["non_destructive"] = (False, True)
    if differences:
        told = ", ".join(f"`{option}={there!r}`" for option, (there, _) in differences.items())
        meant = (
            "a last-value durable"
            if key_field is None
            else f"a last-value durable with the key field {quoted(key_field)}"
        )
        raise QueueMismatch(
            f"The queue {definition.name} is not {meant}: it was declared with {told}.",
            queue=definition.name,
            differences=differences,
            hint="Name another durable, or browse the queue.",
        )


def _warn_if_not_fed(cluster: Cluster, endpoint: str, definition: QueueDefinition) -> None:
    """Warn if no feed from the endpoint has ever run, so that nothing may come."""
    if endpoint == definition.topic:
        return
    with suppress(Unauthorized):  # a subscriber needs no right to see that
        names = [each.name for each in Registry(cluster).all() if each.topic == definition.topic]
        if not any(cluster.groups.committed(feed_name(endpoint, name), endpoint, decided=False) for name in names):
            logger.warning(
                "nothing has fed the durable %s from %s yet. Run: lvq feed %s %s",
                definition.name,
                endpoint,
                shell_word(endpoint),
                shell_word(definition.name),
            )
