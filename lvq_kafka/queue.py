"""Last value queues: declare or open one to get producers, views, browsers and consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import fields, replace
from functools import partial, wraps
from os import PathLike
from threading import Lock
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, Unpack, cast, get_args

from lvq_kafka.admitting.altered_producers import follow_alterations
from lvq_kafka.admitting.gates import gate_of
from lvq_kafka.cluster import Cluster
from lvq_kafka.codecs import BYTES, CODECS, DECLARED, Codec, T, Undecodable, V, codec_of, form_of
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.consumer_options import SELECTING, ConsumerOptions, refuse_selecting
from lvq_kafka.core.facts import Format
from lvq_kafka.core.log.keys import Key
from lvq_kafka.core.queue.altering import FIXED, altered
from lvq_kafka.core.queue.default_filters import DefaultFilters
from lvq_kafka.core.queue.definition import BareOptions, QueueDefinition, QueueOptions, check_name
from lvq_kafka.core.queue.option_names import OPTION_NAMES
from lvq_kafka.core.queue.queue_request import QueueRequest
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.queue.topic_settings import TopicSpec
from lvq_kafka.core.text.quoting import brief
from lvq_kafka.core.text.validation import choice, instance, limit
from lvq_kafka.declared import addressed
from lvq_kafka.declared.group_checks import OnForeignCommits, Start
from lvq_kafka.declared.queue_topic import OnMismatch
from lvq_kafka.declared.registry import Registry
from lvq_kafka.declared.registry_watch import RegistryWatch
from lvq_kafka.dialects.address import Address, LinkRole
from lvq_kafka.dialects.address_forms import parse_address
from lvq_kafka.errors import ConfigError, LVQError, QueueMismatch, QueueNotDeclared
from lvq_kafka.kafka import ClientConfig
from lvq_kafka.kafka.connecting import connect_within
from lvq_kafka.managing import auto_creation, declaring, management
from lvq_kafka.managing.declaring import Alteration, Declaration
from lvq_kafka.managing.feeding import Feed
from lvq_kafka.managing.management import Change, Point, Repair
from lvq_kafka.managing.moving import move
from lvq_kafka.managing.queue_stats import QueueStats, measure
from lvq_kafka.managing.reclaiming import Reclaim, reclaim
from lvq_kafka.producing.producer import Producer, ProducerOptions
from lvq_kafka.reading.browser import Browser
from lvq_kafka.reading.selection import SelectionOptions
from lvq_kafka.reading.view import View
from lvq_kafka.runtime.aio import in_thread
from lvq_kafka.runtime.clocks import uptime
from lvq_kafka.runtime.forking import Bound
from lvq_kafka.runtime.keywords import refuse_unknown
from lvq_kafka.selectors.of_queues import check_selectors
from lvq_kafka.selectors.selector import Selector

__all__ = ["Alteration", "Declaration", "LastValueQueue", "queues"]

P = ParamSpec("P")

_UNSAID: Any = object()
"""Stands for a key header that options name; with neither, `declare` refuses."""

_ELSEWHERE = {row.name: row.as_argument for row in OPTION_NAMES} | {
    field.name: f"Pass it in spec: spec=TopicSpec({field.name}=...)." for field in fields(TopicSpec)
}
"""Arguments that belong elsewhere, each with the place that `LastValueQueue.declare` has for it."""

_MAX_BLOCK = 60.0  # seconds that a send waits for room in a queue, unless its caller says another time
_FEED_BLOCK = 1.0  # seconds that a feed waits for room before it commits what it has sent


def queues(
    bootstrap_servers: str | None = None,
    *,
    config: ClientConfig | Mapping[str, Any] | None = None,
    cluster: Cluster | None = None,
) -> list[QueueDefinition]:
    """Return the definitions of all declared queues, by name.

    Takes the arguments of `connect`.
    """
    with ExitStack() as opened:
        return Registry(connect_within(opened, bootstrap_servers, config=config, cluster=cluster)).all()


def _key_header_said(init: Callable[P, None]) -> Callable[P, None]:
    """Reject a missing ``key_header`` with a hint more helpful than Python's `TypeError`.

    There is no default because any default would be wrong for someone: with None, a message on a queue that does have a
    key header would pass as one without a key, and replace nothing.
    """

    @wraps(init)
    def checked(*args: P.args, **kwargs: P.kwargs) -> None:
        if "key_header" not in kwargs:
            topic = repr(kwargs.get("topic", *args[1:2]))
            raise ConfigError(
                f"LastValueQueue({topic}) opens a topic as it is, but no key_header names its key.",
                options=["key_header"],
                hint=f"Open a declared queue with LastValueQueue.open({topic}), create one with "
                f"LastValueQueue.declare({topic}, key_header=...), or pass key_header=None if the record key "
                "itself is the key.",
            )
        init(*args, **kwargs)

    return checked


def _check_selectors(address: Address) -> None:
    """Check that the selectors in an address can be read.

    Raises:
        ConfigError: one of them cannot; says where in the address.
        MissingExtra: the extra ``selectors`` is not installed.
    """
    try:
        if address.selector is not None:
            Selector(address.selector, address.queue)
    except ConfigError as error:
        raise address.placed(error) from None
    try:
        check_selectors(address.definition(complete=False))
    except ConfigError as error:
        raise address.placed(error, in_definition=True) from None


def _selecting(address: Address, given: SelectionOptions[V]) -> SelectionOptions[V]:
    """Return what a reader selects: as its caller says, and otherwise as the address does."""
    said = {name: value for name, value in given.items() if value is not None}
    of_address = {name: value for name, value in address.selection.items() if name != "replay_period"}
    return cast("SelectionOptions[V]", {**of_address, **said})


def _check_sending(address: Address) -> None:
    """Check that an address allows to send.

    Raises:
        ConfigError: it does not; says where.
    """
    if address.subject is not None:
        error = ConfigError(
            f"The subject {brief(address.subject)} of the address is for receivers.",
            options=["subject"],
            hint="Name the queue alone to send to it, and give each message the header qpid.subject.",
        )
        raise address.placed(error)


def _check_viewing(address: Address) -> None:
    """Check that an address allows to view.

    Raises:
        ConfigError: it does not; says where.
    """
    if address.replay_period is not None:
        error = ConfigError(
            "A view holds the current values, whenever they arrived, so it has no replay period.",
            options=["replay_period"],
            hint="Browse the queue, or leave the period out of the address.",
        )
        raise address.placed(error)


def _check_consuming(address: Address) -> None:
    """Check that an address allows to consume.

    Raises:
        ConfigError: it is for browsing, or selects (R27); says where.
    """
    try:
        if address.mode == "browse":
            raise ConfigError(
                "The address is for browsing, which takes no message from the queue.",
                options=["mode"],
                hint="Browse the queue, or name it alone to consume it.",
            )
        refuse_selecting(address.selection)
    except ConfigError as error:
        raise address.placed(error) from None


def _format_said(value: Codec[Any] | type[Any]) -> Format | None:
    """Return the format that a codec says; None if it says none, as the default does."""
    form = "bytes" if value is DECLARED else form_of(codec_of(value))
    return None if form == "bytes" else form


def _watch_on(cluster: Cluster, name: str) -> RegistryWatch:
    """Return the watch on the definition of a declared queue.

    Raises:
        QueueNotDeclared: there is no queue of that name.
        TransportError: the cluster cannot be reached or refuses the request.
    """
    then = uptime()
    return RegistryWatch(cluster, name, Registry(cluster).history(name), then)


class LastValueQueue(Bound, Generic[V]):
    """A named queue on a log-compacted topic that keeps the newest message of each key.

    Create one with `declare` (which creates the queue or verifies that it matches), with `open` (the queue must be
    declared already), with `at` (by an address of Qpid, Artemis or Broker-J), or with the constructor. The constructor
    uses an existing compacted topic as it is, without registry or consumers:
    ``LastValueQueue("prices", key_header=None)`` uses the record key itself as the key.

    In asyncio, use ``await LastValueQueue.open_async(...)``. Methods that wait for the cluster have a twin whose name
    ends in ``_async``; for `close` it is `aclose`. A cancelled task continues at once, and anything half open is closed
    in the background. Methods that only manage a queue have no twin; use `asyncio.to_thread`.

    Args:
        topic: the compacted topic.
        key_header: the message header that names the key; None when the record key itself is the key. Required, since
            it cannot be inferred.
        bootstrap_servers: where the topic lives; see `connect`.
        config: how to connect; see `connect`.
        cluster: an open cluster instead. You remain responsible for closing it.
        value: the codec for values: `BYTES`, `TEXT`, `JSON`, `DECLARED` or your own; or a dataclass, a model of
            pydantic or a struct of msgspec, for its JSON.
        options: the queue's; see `BareOptions`.

    Raises:
        ConfigError: a name, header or option is malformed, or ``key_header`` is missing.
    """

    @refuse_unknown()
    @_key_header_said
    def __init__(
        self,
        topic: str,
        *,
        key_header: str | None,
        value: Codec[V] | type[V] = BYTES,  # type: ignore[assignment]  # the default of V
        bootstrap_servers: str | None = None,
        config: ClientConfig | Mapping[str, Any] | None = None,
        cluster: Cluster | None = None,
        **options: Unpack[BareOptions],
    ) -> None:
        definition = QueueDefinition(name=topic, topic=topic, key_header=key_header, **options)
        with ExitStack() as opened:
            cluster = connect_within(opened, bootstrap_servers, config=config, cluster=cluster)
            self._set(definition, value, cluster, opened, None)

    def _set(
        self,
        definition: QueueDefinition,
        value: Codec[V] | type[V],
        cluster: Cluster,
        opened: ExitStack,
        watch: RegistryWatch | None,
    ) -> None:
        self._bare, self._watch = definition, watch
        self.cluster = cluster
        self._asked = value
        self._choose_codec()
        self.declaration: Declaration | None = None
        self._address: Address | None = None
        self._missing = False  # and the address says how to declare it
        self._linking = Lock()
        self._opened = opened.pop_all()  # takes over the duty to close

    def _choose_codec(self) -> None:
        """Choose the codec that was asked for, which may be that of the definition."""
        value = self._asked
        self.value_codec = CODECS[self._bare.format or "bytes"] if value is DECLARED else codec_of(value)

    @classmethod
    def _of(cls, name: str, value: Codec[T] | type[T], cluster: Cluster, opened: ExitStack) -> LastValueQueue[T]:
        """Return a declared queue, as the registry has it."""
        watch = _watch_on(cluster, name)
        queue = cast("LastValueQueue[T]", cls.__new__(cls))
        queue._set(watch.history.newest, value, cluster, opened, watch)
        return queue

    @classmethod
    @refuse_unknown()
    def open(
        cls,
        name: str,
        *,
        value: Codec[T] | type[T] = BYTES,  # type: ignore[assignment]  # the default of T
        bootstrap_servers: str | None = None,
        config: ClientConfig | Mapping[str, Any] | None = None,
        cluster: Cluster | None = None,
    ) -> LastValueQueue[T]:
        """Open a queue that is already declared, with its declared definition.

        Raises:
            QueueNotDeclared: there is no queue of that name.
            TransportError: the cluster cannot be reached or refuses the request.
            ConfigError: an argument is invalid.
        """
        check_name("queue", name)
        with ExitStack() as opened:
            cluster = connect_within(opened, bootstrap_servers, config=config, cluster=cluster)
            return cls._of(name, value, cluster, opened)

    @classmethod
    @refuse_unknown()
    def at(
        cls,
        address: str,
        *,
        create: bool = True,
        value: Codec[T] | type[T] = BYTES,  # type: ignore[assignment]  # the default of T
        bootstrap_servers: str | None = None,
        config: ClientConfig | Mapping[str, Any] | None = None,
        cluster: Cluster | None = None,
    ) -> LastValueQueue[T]:
        """Open the queue at an address of Qpid, Artemis or Broker-J.

        The `definition` is the declared one; or, if the queue is missing and the address creates it, the one that it
        will have. Its first producer declares it, or its first reader or consumer, whichever the address says; managing
        a queue never does. A queue that exists is used as it is. Where it differs from the address, a logged warning
        says so; if the address asserts it, that is an error, for the links that the address names.

        Readers have the selection of the address, except where their callers say otherwise. `receiver` returns what the
        address says.

        Args:
            address: for example ``"prices; {create: always, mode: browse}"``, ``"orders?last-value-key=code"``, or the
                name of a queue.
            create: False if a missing queue is an error, whatever the address says.

        Raises:
            ConfigError: the address is malformed, asks for what no queue of this library can have, or holds a password;
                says where in the text. Or another argument is invalid.
            QueueNotDeclared: the queue is missing, and the address does not create it.
            QueueMismatch: the queue is not as the address says, which asserts it for all links.
            MissingExtra: there is a selector, and the extra ``selectors`` is not installed.
            TransportError: the cluster cannot be reached or refuses the request.
        """
        parsed = parse_address(address)
        _check_selectors(parsed)
        with ExitStack() as opened:
            cluster = connect_within(opened, bootstrap_servers, config=config, cluster=cluster)
            try:
                definition, missing = addressed.declared_at(cluster, parsed), False
            except QueueNotDeclared:
                if not create or parsed.create == "never":
                    raise
                definition, missing = auto_creation.asked_at(cluster, parsed, _format_said(value))[0], True
                definition.check_declarable()
            queue = cast("LastValueQueue[T]", cls.__new__(cls))
            queue._set(definition, value, cluster, opened, None if missing else _watch_on(cluster, definition.name))
            queue._address, queue._missing = parsed, missing
            return queue

    @classmethod
    @refuse_unknown(hints=_ELSEWHERE, more="`lvq options` lists the names that options= takes.")
    def declare(
        cls,
        name: str,
        *,
        key_header: str | None = _UNSAID,
        topic: str | None = None,
        options: Mapping[str, object] | None = None,
        start: Start = "earliest",
        spec: TopicSpec | None = None,
        on_mismatch: OnMismatch = "raise",
        value: Codec[T] | type[T] = BYTES,  # type: ignore[assignment]  # the default of T
        bootstrap_servers: str | None = None,
        config: ClientConfig | Mapping[str, Any] | None = None,
        cluster: Cluster | None = None,
        **given: Unpack[QueueOptions],
    ) -> LastValueQueue[T]:
        """Create a queue, or verify that it matches. Never silently changes anything that exists.

        Creates the topic if it is missing, with settings that keep a last value queue healthy; checks the settings if
        it exists. ``queue.declaration`` reports the findings, the changes, and anything that could not be checked.

        Args:
            name: the queue's name, and its topic's unless ``topic`` is given. Several queues may share a topic.
            key_header: the message header that names the key; None when the record key itself is the key. Required,
                unless ``options`` name it or ask for a standard queue.
            start: whether a new queue includes the existing contents of its topic, or only new messages.
            spec: how to create the topic if it is missing, and what to expect of an existing one.
            on_mismatch: what to do if an existing topic's settings break a last value queue.
            options: options by their names in Qpid, Artemis and Broker-J, or as ``lvq declare -o`` takes them, for
                example ``{"last-value-key": "ticker", "expiry-delay": 60_000}``. They hold together with the arguments.
            given: the queue's options; see `QueueOptions`.

        Raises:
            ConfigError: a name, header or option is unknown or malformed (R3), options exclude each other, or ``spec``
                has settings that exclude ``max_delay`` or the kind of queue.
            MissingExtra: there is a selector, and the extra ``selectors`` is not installed.
            QueueMismatch: the queue is declared with other properties, or its topic is used with another key header,
                another placement, or by queues of the other kind.
            TopicMismatch: the topic exists, and is not compacted, or cannot do what ``ttl`` or ``max_delay`` needs; or
                is compacted or has retention, and would lose messages of a standard queue.
            QueueNotDeclared: the queue is new, and a group of its name has positions in only some of the partitions.
            TransportError: the cluster cannot be reached or refuses the request.
        """
        arguments: dict[str, Any] = {**given}
        if "default_filters" in arguments:
            arguments["default_filters"] = DefaultFilters.of(arguments["default_filters"])
        if key_header is not _UNSAID:
            arguments["key_header"] = key_header
        request = QueueRequest(name, topic or name, arguments, options, _format_said(value))
        if (definition := request.alone()) is not None:
            check_selectors(definition)
        choice("on_mismatch", on_mismatch, get_args(OnMismatch))
        choice("start", start, get_args(Start))
        if spec is not None:
            instance("spec", spec, TopicSpec, "For example spec=TopicSpec(partitions=6).")
        with ExitStack() as opened:
            cluster = connect_within(opened, bootstrap_servers, config=config, cluster=cluster)
            declare = partial(
                declaring.declare, cluster, start=start, spec=spec or TopicSpec(), on_mismatch=on_mismatch
            )
            definition, unread = declaring.complete(cluster, request)
            try:
                declaration = declare(definition)
            except QueueMismatch:
                if definition.format is None or definition.format != request.codec_format:
                    raise
                # Somebody else was faster, whose format counts: a codec asks for none (R53).
                declaration = declare(declaring.complete(cluster, request)[0])
            queue = cls._of(name, value, cluster, opened)
            queue.declaration = replace(declaration, unchecked=(*declaration.unchecked, *unread))
            return queue

    @classmethod
    async def open_async(
        cls,
        name: str,
        *,
        value: Codec[T] | type[T] = BYTES,  # type: ignore[assignment]  # the default of T
        **options: Any,
    ) -> LastValueQueue[T]:
        """Like `open`, for asyncio."""
        return await in_thread(partial(cls.open, name, value=value, **options), undo=lambda queue: queue.close())

    @classmethod
    async def at_async(
        cls,
        address: str,
        *,
        value: Codec[T] | type[T] = BYTES,  # type: ignore[assignment]  # the default of T
        **options: Any,
    ) -> LastValueQueue[T]:
        """Like `at`, for asyncio.

        If the queue is missing, use `producer_async` and `receiver_async`: the first of them declares it.
        """
        return await in_thread(partial(cls.at, address, value=value, **options), undo=lambda queue: queue.close())

    @classmethod
    async def declare_async(
        cls,
        name: str,
        *,
        value: Codec[T] | type[T] = BYTES,  # type: ignore[assignment]  # the default of T
        **options: Any,
    ) -> LastValueQueue[T]:
        """Like `declare`, for asyncio, with the same arguments.

        A cancelled declaration may still be carried out.
        """
        call = partial(cls.declare, name, value=value, **options)
        return await in_thread(call, undo=lambda queue: queue.close())

    # ---------------------------------------------------------------- properties

    @property
    def definition(self) -> QueueDefinition:
        """The queue's options that hold now, as far as this object knows (R39).

        It knows of an alteration before that holds, while any of the queue's readers, consumers or producers is open
        here, and once one of the methods that manage the queue was called.
        """
        return self._bare if self._watch is None else self._watch.in_force

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._bare.name

    @property
    def topic(self) -> str:
        """The queue's topic."""
        return self._bare.topic

    @property
    def key_header(self) -> str | None:
        """The message header that names the key; None when the record key itself is the key."""
        return self._bare.key_header

    def __repr__(self) -> str:
        key = "of the record" if self.key_header is None else brief(self.key_header)
        return f"<LastValueQueue {self.name} on {self.topic}, key {key}>"

    def close(self) -> None:
        """Close the connection used for requests, unless the cluster was passed in.

        Others may share that connection. Close the queue's readers and writers first: they are closed separately, and
        they make requests over it, too.
        """
        self._opened.close()

    async def aclose(self) -> None:
        """Like `close`, for asyncio."""
        await in_thread(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # ---------------------------------------------------------------- producers, readers and consumers

    @refuse_unknown()
    def producer(self, **options: Unpack[ProducerOptions]) -> Producer[V]:
        """Return a producer, with the options of `ProducerOptions`; see `Producer`.

        That of a standard queue only has `send` (R35). If the queue's limits have the policy ``"reject"`` or
        ``"block"``, this reads what is in the queue first (R12).

        Raises:
            ConfigError: an option is invalid, or the queue's address has a subject, which is for receivers.
            QueueNotDeclared, TopicRecreated, CommitMapRefused: there are limits, and it is unknown what was consumed.
            TopicNotFound, CatchUpTimeout: there are limits, and the topic cannot be read.
            TransportError: the cluster cannot be reached or refuses.
        """
        return self._producer(self.value_codec, options)

    def _producer(self, codec: Codec[T], options: ProducerOptions) -> Producer[T]:
        if self._address is not None:
            _check_sending(self._address)
        self._link("sender")
        max_block = options.get("max_block")
        open_gate = partial(
            gate_of,
            self.cluster,
            consumed=self._watch is not None and not self._bare.non_destructive,
            max_block=options.get("max_block", _MAX_BLOCK),
            watch=self._watch,
        )
        definition = self.definition
        gate = open_gate(definition)
        try:
            producer = Producer(
                self.cluster,
                QueueRules.of(definition),
                value=codec,
                transactional_id=options.get("transactional_id"),
                max_block=max_block,
                gate=gate,
            )
        except BaseException:
            if gate is not None:
                gate.close()
            raise
        if self._watch is not None:
            follow_alterations(producer, self._watch, definition, open_gate)
        return producer

    async def producer_async(self, **options: Unpack[ProducerOptions]) -> Producer[V]:
        """Like `producer`, for asyncio.

        Creation waits for the cluster if there is a transactional id, if messages are placed by group, or if the queue
        has limits.
        """
        return await in_thread(partial(self.producer, **options), undo=Producer.close)

    @refuse_unknown()
    def view(
        self,
        *,
        undecodable: Undecodable = "raise",
        catch_up_timeout: float | None = 60.0,
        metadata_interval: float = 5.0,
        store: str | PathLike[str] | None = None,
        **selection: Unpack[SelectionOptions[V]],
    ) -> View[V]:
        """Return a live mapping from key to current value; see `View`.

        Args:
            store: a directory to keep the values in, instead of memory: a view that is opened there later reads only
                what is new (R40). Needs the extra ``store``.
            selection: what to hold; see `SelectionOptions`.

        Raises:
            ConfigError: an option is invalid, or this is a standard queue: browse it (R35); or the queue's address has
                a replay period.
        """
        if self._address is not None:
            _check_viewing(self._address)
            selection = _selecting(self._address, selection)
        self._link("receiver")
        return View(
            self.cluster,
            self._known,
            self.value_codec,
            undecodable=undecodable,
            catch_up_timeout=catch_up_timeout,
            metadata_interval=metadata_interval,
            watch=self._watch,
            store=store,
            **selection,
        )

    @refuse_unknown()
    def browser(
        self,
        *,
        dump: bool = True,
        replay_period: float | None = None,
        default_filters: bool = True,
        hide_consumed: bool = True,
        on_foreign_commits: OnForeignCommits = "refuse",
        refresh: float = 1.0,
        previous: bool = False,
        changed: bool = False,
        every: float | None = None,
        follow: bool = True,
        undecodable: Undecodable = "raise",
        catch_up_timeout: float | None = 60.0,
        metadata_interval: float = 5.0,
        **selection: Unpack[SelectionOptions[V]],
    ) -> Browser[V]:
        """Return a non-destructive reader: dump, end of dump, updates; see `Browser`.

        Args:
            default_filters: use the queue's default filters for ``replay_period`` and ``selector`` where they are not
                given (R28).
            hide_consumed: leave out messages that this queue's consumers have consumed (G2).
            on_foreign_commits: what to do if something else has committed with the queue's group, so that it is unknown
                which messages were consumed: ``"refuse"`` raises `CommitMapRefused`, ``"ignore"`` relies on the offsets
                alone.
            selection: what to return; see `SelectionOptions`.
        """
        self._link("receiver")
        if self._address is not None:
            selection = _selecting(self._address, selection)
            if replay_period is None and dump:
                replay_period = self._address.replay_period
        if default_filters and (filters := self.definition.default_filters) is not None:
            if replay_period is None and dump:
                replay_period = filters.replay_period
            if selection.get("selector") is None:
                selection["selector"] = filters.selector
        consumable = self._watch is not None and not self.definition.non_destructive
        return Browser(
            self.cluster,
            self._known,
            self.value_codec,
            dump=dump,
            replay_period=replay_period,
            group=self.definition.group if hide_consumed and consumable else None,
            on_foreign_commits=on_foreign_commits,
            refresh=refresh,
            previous=previous,
            changed=changed,
            every=every,
            follow=follow,
            undecodable=undecodable,
            catch_up_timeout=catch_up_timeout,
            metadata_interval=metadata_interval,
            watch=self._watch,
            **selection,
        )

    @refuse_unknown(passes=SELECTING)
    def consumer(self, **options: Unpack[ConsumerOptions]) -> Consumer[V]:
        """Return a destructive reader, which shares this queue with the others.

        See `ConsumerOptions` for the options, and `Consumer` for the errors it raises.

        Raises:
            ConfigError: the queue was declared ``non_destructive`` (R13), or an option is one of a reader's selection
                (R27). Or the queue's address has such an option, or is for browsing.
            QueueNotDeclared: this is a bare topic without a declared queue, so consumption has nowhere to be recorded.
        """
        refuse_selecting(options)
        if self._address is not None:
            _check_consuming(self._address)
        self._link("receiver")
        self._check_consumed("consumed")
        definition = self._known
        return Consumer(
            self.cluster,
            definition,
            self.value_codec,
            reclaim=partial(reclaim, self.cluster, definition),
            watch=self._watch,
            **options,
        )

    async def consumer_async(self, **options: Unpack[ConsumerOptions]) -> Consumer[V]:
        """Like `consumer`, for asyncio: creation asks the cluster what was consumed.

        Takes the same options.

        ::

            async with await queue.consumer_async() as consumer: ...
        """
        return await in_thread(partial(self.consumer, **options), undo=Consumer.close)

    def receiver(self, **options: Any) -> Browser[V] | Consumer[V]:
        """Return the receiver that the queue's address says: a browser, or a consumer.

        It is a browser if the mode of the address is ``browse``, or if the queue is ``non_destructive``; otherwise a
        consumer, also for a queue without an address.

        Args:
            options: those of `browser` or `consumer`, respectively. They count more than what the address says.

        Raises what `browser` and `consumer` raise.
        """
        address = self._address
        browses = address is not None and address.mode == "browse"
        if address is not None and not (browses or self.definition.non_destructive):
            _check_consuming(address)
        self._link("receiver")
        if browses or self.definition.non_destructive:
            return self.browser(**options)
        return self.consumer(**options)

    async def receiver_async(self, **options: Any) -> Browser[V] | Consumer[V]:
        """Like `receiver`, for asyncio, with the same options."""
        return await in_thread(partial(self.receiver, **options), undo=lambda receiver: receiver.close())

    def _link(self, role: LinkRole) -> None:
        """Declare the queue of an address for a sender or receiver, if it is missing.

        Raises:
            QueueNotDeclared: it is missing, and the address does not declare it for such a link.
            QueueMismatch: it is not as the address says, which asserts it for such a link.
            As `declare`.
        """
        if self._address is None:
            return
        with self._linking:
            if self._missing:
                self._bare, self.declaration = auto_creation.declare_for(
                    role, self.cluster, self._address, _format_said(self._asked)
                )
                self._watch, self._missing = _watch_on(self.cluster, self.name), False
                self._choose_codec()
        addressed.check_asserted(self.definition, self._address, role)

    def _manage(self) -> None:
        """Look again for a queue that was missing; managing it does not declare it.

        Raises:
            ConfigError: its address selects messages.
            QueueNotDeclared: it is still missing.
        """
        if self._address is None:
            return
        addressed.check_managing(self._address)
        with self._linking:
            if self._missing:
                self._bare = addressed.declared_at(self.cluster, self._address)
                self._watch, self._missing = _watch_on(self.cluster, self.name), False
                self._choose_codec()

    # ---------------------------------------------------------------- management

    # Changes require that no consumer is active: only then do brokers accept commits from outside.

    def stats(self, *, on_foreign_commits: OnForeignCommits = "refuse", timeout: float = 60.0) -> QueueStats:
        """Return the queue's depth, oldest message, lag and number of active consumers.

        Reads the topic once, from the bases to its end, and accounts for messages consumed meanwhile. It works while
        consumers are active and does not disturb them. For what a single consumer has done, see `Consumer.stats`.

        Raises:
            QueueNotDeclared, TopicRecreated, DataLoss, CommitMapRefused: the group's commits are damaged; `repair`
                reports and repairs it.
            TopicNotFound: the topic does not exist.
            CatchUpTimeout: reading took longer than ``timeout`` seconds.
            TransportError: the cluster cannot be reached or refuses.
        """
        choice("on_foreign_commits", on_foreign_commits, get_args(OnForeignCommits))
        self._manage()
        return measure(
            self.cluster,
            self.refresh(),
            consumed=self._watch is not None and not self._bare.non_destructive,
            on_foreign_commits=on_foreign_commits,
            timeout=limit(timeout),
        )

    def purge(self, *, keys: Iterable[Key] | None = None, timeout: float = 60.0) -> Change:
        """Mark everything now in the queue as consumed, or only the messages of ``keys``.

        Messages without a key cannot be chosen by keys; `expire` chooses by age. Scheduled messages go, too (R11). The
        topic does not change, so views, browsers of the topic and other queues on it do not notice. Messages hidden by
        an open transaction are still to come.

        Raises:
            QueueError: consumers are active.
            ConfigError: the queue was declared ``non_destructive``, so nothing in it is ever consumed.
            QueueNotDeclared, TopicRecreated, DataLoss, CommitMapRefused, TopicNotFound, CatchUpTimeout, TransportError:
                as in `stats`.
        """
        return management.purge(self.cluster, self._consumed("purged"), keys, timeout=limit(timeout))

    def expire(self, older_than: float, *, timeout: float = 60.0) -> Change:
        """Mark messages that arrived more than ``older_than`` seconds ago as consumed.

        Scheduled messages stay: they have not been waiting for anybody yet (R11).

        Age is judged by the cluster's clock, as read from the commits of the queue's group. If this user may not
        describe ``__consumer_offsets``, this machine's clock is used, with a logged warning.

        Raises what `purge` raises.
        """
        return management.expire(self.cluster, self._consumed("expired"), older_than, timeout=limit(timeout))

    def reset(self, to: Point) -> Change:
        """Move the queue to another point: it then holds exactly what the log has from there on.

        This also repairs commits of other clients, in the partitions that are moved.

        Args:
            to: ``"earliest"``, ``"latest"``, a time in seconds since the epoch, or offsets by partition; partitions
                that are not named stay where they are. Only values that compaction has left can be redelivered.

        Raises what `purge` raises, and `ConfigError` for a point outside the log.
        """
        return management.reset(self.cluster, self._consumed("reset"), to)

    def repair(self, start: Point | None = None, *, dry_run: bool = False) -> Repair:
        """Repair the queue's commits, as far as possible without guessing.

        Partitions that were added are included from their beginning. If the log ends before what was consumed, the
        queue continues at the end. A commit whose text is missing, not the queue's, newer or damaged is replaced by one
        that uses its offset, or ``start``. If the record of what was consumed is lost (the group is gone, some of its
        commits are, or they belong to an earlier topic), ``start`` says where to begin; without it, that damage is left
        and reported.

        Args:
            start: see `reset`.
            dry_run: only report.

        Raises what `reset` raises, except what it repairs.
        """
        return management.repair(self.cluster, self._consumed("repaired"), start, dry_run=dry_run)

    def keep_alive(self, *, timeout: float = 30.0) -> bool:
        """Keep the record of what was consumed, as if a consumer had just stopped (R50).

        Brokers forget what a group has consumed a while after its last member left: ``offsets.retention.minutes``, a
        week by default. This joins the group and leaves it, by the classic protocol. No message is read, handed out or
        committed, so no ack can be undone.

        Returns:
            False if consumers are active, which keep it themselves; nothing was done.

        Args:
            timeout: seconds for the group to admit this member.

        Raises:
            ConfigError: the queue was declared ``non_destructive``, so nothing in it is ever consumed.
            GroupNotFound: the brokers have forgotten all of it already; see `repair`.
            OffsetsExpired, PartitionsAdded, TopicRecreated, DataLoss, CommitMapRefused: the commits are damaged; those
                that are left are kept all the same. See `repair`.
            TopicNotFound, TransportError: as in `stats`; or the group has not admitted this member in time.
        """
        return management.keep_alive(self.cluster, self._consumed("kept alive"), timeout=limit(timeout))

    def move(
        self,
        destination: LastValueQueue[Any],
        *,
        keys: Iterable[Key] | None = None,
        atomic: bool = True,
        timeout: float = 60.0,
    ) -> Change:
        """Move messages to another queue: all, or those of ``keys``. Values and headers are kept.

        In the other queue they are new: each replaces what that queue has for its key. If the other queue has another
        key header, that one names the key; a message without it counts as one without a key, or is refused (R1). So do
        groups: a message belongs to the one that its header says there, if that queue has groups (R36).

        Scheduled messages move, too, and are due when they were (R11). Of a key, all that is scheduled moves with the
        value that counts. The other queue must let them wait for as long.

        Messages keep their rank, which is in a header (R20). If it does not count in the other queue, because that has
        another order, a logged warning says so.

        Args:
            atomic: move in transactions of some thousand messages, so that each message is in exactly one of the
                queues, whatever happens. Requires the right to use the transactional id ``lvq.move.<queue>``. Otherwise
                all messages are written, then marked as consumed: if something fails in between, they are in both
                queues (at least once). That works between clusters, too.
            timeout: seconds for reading the queue, and for each batch that is written.

        Raises:
            MissingKey: a message has no key for the other queue, which refuses such messages.
            DeliveryFailed: a message was not stored in the other queue.
            OutcomeUnknown: it is not yet decided whether the last batch was moved.
            ConfigError: both queues are on one topic, or no transaction is possible.
            QueueError: consumers are active, the messages lie too far apart for one commit map, or the other queue's
                ``max_delay`` is too short for those that are scheduled.
            QueueNotDeclared, TopicRecreated, DataLoss, CommitMapRefused, TopicNotFound, CatchUpTimeout, TransportError:
                as in `stats`.
        """
        instance("destination", destination, LastValueQueue, "Open the destination queue.")
        destination._manage()
        return move(
            self.cluster,
            self._consumed("moved from"),
            destination.cluster,
            destination.definition,
            keys,
            atomic=atomic,
            timeout=limit(timeout),
        )

    def feed(self, source: str, *, start: Start | None = None) -> Feed:
        """Return a `Feed`, which forwards the messages of a topic to this queue, each once.

        The feed has the transactional id ``lvq-feed.<source>:<queue>``, and keeps its position as the group of that
        name. It goes on where the last one ended. The first one feeds all that the source has, if the queue's topic is
        empty; else ``start`` has to say where it begins.

        Args:
            source: the topic to read, of any kind, on the same cluster.
            start: where to start if no position is known: ``"earliest"`` or ``"latest"``. Also if the position is lost:
                it has expired, the source was re-created, or what follows it is gone. By default, that is an error.

        Raises:
            ConfigError: the source is the queue's own topic, or cannot be the name of a topic.
            MissingExtra: the queue has a selector, and the extra ``selectors`` is not installed.
            TransportError: the cluster cannot be reached or refuses.
        """
        self._link("sender")
        return Feed(
            self.cluster,
            self.definition,
            source,
            lambda name: self._producer(BYTES, {"transactional_id": name, "max_block": _FEED_BLOCK}),
            start=start,
        )

    def reclaim(self, *, dry_run: bool = False) -> Reclaim:
        """Delete from the topic, permanently, what all declared queues on it have consumed.

        That is everything below their lowest base, so never beyond a scheduled message (R11). Requires a topic with the
        policy ``compact,delete``, or that of standard queues, ``delete``. Consumers do it by themselves with
        ``auto_reclaim``. Deleted records are gone for everyone: views, Spark and browsers of the topic itself no longer
        see consumed values, and a queue that is declared later or reset cannot go back to them. Consumers may be
        active.

        Args:
            dry_run: only report.

        Raises:
            TopicMismatch: the topic's policy does not allow it.
            QueueError: the topic also serves a queue that is never consumed.
            QueueNotDeclared: this queue, or another one on the topic, holds no position.
            ConfigError: the definition of another queue cannot be read.
            TopicRecreated, DataLoss, CommitMapRefused, TransportError: as in `stats`, for any of the queues.
        """
        return reclaim(self.cluster, self._consumed("reclaimed"), dry_run=dry_run)

    def newest(self) -> QueueDefinition:
        """Look whether the queue was altered, and return the options that it was given last.

        They may not hold yet; see `definition` for those that do. Raises what `refresh` raises.
        """
        self._manage()
        if self._watch is None:
            return self._bare
        self._watch.refresh()
        return self._watch.history.newest

    @refuse_unknown(hints={option: f"It cannot be altered: {why}. {way}" for option, (why, way) in FIXED.items()})
    def alter(self, *, on_mismatch: OnMismatch = "reconcile", **changes: Unpack[QueueOptions]) -> Alteration:
        """Change options of the queue while it lives (R39). All that was consumed stays so.

        The queue has them from a time on, half a minute later, by which all who use the queue know of it; readers and
        consumers start over by themselves. A message is judged by the ``ttl`` and ``max_delay`` of its append time, so
        older ones keep the terms they were written under. The topic's settings go along.

        Of two alterations at once, the first counts. Other options than ``keyless``, ``ttl``, ``expiry_topic``,
        ``max_delay``, ``limits``, ``default_filters``, ``max_deliveries``, ``dead_letters`` and ``format`` are as they
        were declared.

        Args:
            on_mismatch: the policy for settings of the topic that do not suit the altered options.
            changes: the options to change; see `QueueOptions`. All others stay.

        Raises:
            ConfigError: an option cannot be altered, and why, with the way out; or is malformed, or excludes another.
            MissingExtra: there is a default selector, and the extra ``selectors`` is not installed.
            QueueMismatch: someone else altered the queue at the same time.
            QueueNotDeclared: the queue is not declared, or is a bare topic.
            TopicMismatch: the topic cannot do what the options need, and ``on_mismatch`` is ``"raise"``; or the times
                of the registry come from clients.
            TopicNotFound: the expiry topic, or that of dead letters, does not exist.
            TransportError: the cluster cannot be reached or refuses.
        """
        choice("on_mismatch", on_mismatch, get_args(OnMismatch))
        self._manage()
        if self._watch is None:
            raise QueueNotDeclared(
                f"{self.topic} was opened as a bare topic, so there is no definition to alter.",
                queue=self.name,
                hint="Open it with other options.",
            )

        def change(definition: QueueDefinition) -> QueueDefinition:
            found = altered(definition, changes)
            check_selectors(found)
            return found

        try:
            return declaring.alter(self.cluster, self.name, change, on_mismatch=on_mismatch)
        finally:
            with suppress(LVQError):  # the watch notices later, too
                self._watch.refresh()

    async def alter_async(
        self, *, on_mismatch: OnMismatch = "reconcile", **changes: Unpack[QueueOptions]
    ) -> Alteration:
        """Like `alter`, for asyncio. A cancelled alteration may still be carried out."""
        return await in_thread(partial(self.alter, on_mismatch=on_mismatch, **changes))

    def drop(self, *, delete_topic: bool = False) -> None:
        """Delete the queue's definition and progress. Its topic stays unless requested.

        Where it stays, what was consumed comes again if the queue is declared again, unless that is done with
        ``start="latest"``.

        Args:
            delete_topic: also delete the topic and everything in it.

        Raises:
            QueueNotDeclared: the queue is not declared.
            QueueError: the topic serves other queues, or consumers are still active.
            ConfigError: ``delete_topic`` was requested, and the definition of another queue, which may be on the same
                topic, cannot be read.
            TransportError: the cluster cannot be reached or refuses.
        """
        self._manage()
        declaring.drop(self.cluster, self._bare, delete_topic=delete_topic)

    @property
    def _known(self) -> QueueDefinition:
        """The options that hold now, with the terms of time for messages of any append time."""
        return self._bare if self._watch is None else self._watch.known

    def refresh(self) -> QueueDefinition:
        """Look whether the queue was altered (R39), unless that was just done.

        Return the options that hold now for the queue as a whole, with the terms of time for all messages of up to now,
        or later, as far as they are known. A topic without a declaration is never altered.

        Raises:
            QueueMismatch: the queue was dropped, and declared otherwise.
            ConfigError: a newer library altered the queue.
            TransportError: the cluster cannot be reached or refuses.
        """
        if self._watch is not None:
            with suppress(QueueNotDeclared):  # those who need its group say so
                self._watch.refresh_if_due()
        return self._known

    def _consumed(self, what: str) -> QueueDefinition:
        """Return the definition of a queue that can be consumed, as it is now.

        Raises:
            ConfigError, QueueNotDeclared: it cannot be consumed.
            TransportError: the cluster cannot be reached or refuses.
        """
        self._manage()
        self._check_consumed(what)
        return self.refresh()

    def _check_consumed(self, what: str) -> None:
        if self._bare.non_destructive:
            raise ConfigError(
                f"The queue {self.name} was declared with `non_destructive=True`, so nothing can be {what}.",
                options=["non_destructive"],
                hint="Browse it, delete keys, or declare another queue on its topic.",
            )
        if self._watch is None:
            raise QueueNotDeclared(
                f"{self.topic} was opened as a bare topic, so there is no record of what was consumed.",
                queue=self.name,
                hint="Declare a queue on it: LastValueQueue.declare(...).",
            )
