"""A last value queue: declare it, open it, and get its producer, view, browser and consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, get_args

from lvq_kafka.aio import in_thread
from lvq_kafka.cluster import Cluster
from lvq_kafka.codecs import BYTES, Codec, Undecodable, V
from lvq_kafka.connecting import connect_within
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.core.definition import KeylessPolicy, QueueDefinition, check_name
from lvq_kafka.core.fold import Order
from lvq_kafka.core.keys import HeaderValue, Key
from lvq_kafka.core.mismatch import KeyMismatchPolicy
from lvq_kafka.core.policy import TopicSpec
from lvq_kafka.core.quoting import brief
from lvq_kafka.core.validation import choice, instance
from lvq_kafka.errors import ConfigError
from lvq_kafka.managing.declaring import Declaration, declare
from lvq_kafka.managing.group_checks import OnForeignCommits, Start
from lvq_kafka.managing.managed import Managed
from lvq_kafka.producer import Producer
from lvq_kafka.reading.browser import Browser
from lvq_kafka.reading.view import View
from lvq_kafka.registry import Registry
from lvq_kafka.topics import OnMismatch

if TYPE_CHECKING:
    from lvq_kafka.kafka import ClientConfig

__all__ = ["Declaration", "LastValueQueue", "queues"]

P = ParamSpec("P")


def queues(
    bootstrap_servers: str | None = None,
    *,
    config: ClientConfig | Mapping[str, Any] | None = None,
    cluster: Cluster | None = None,
) -> list[QueueDefinition]:
    """The definitions of all declared queues, by name. Arguments as for `connect`."""
    with ExitStack() as opened:
        return Registry(connect_within(opened, bootstrap_servers, config=config, cluster=cluster)).all()


def _key_header_said(init: Callable[P, None]) -> Callable[P, None]:
    """Say what to do to who leaves ``key_header`` out, beyond what a type checker or Python's `TypeError` says.

    It has no default because each would be wrong for somebody: with None a message of a queue that has a key header
    would pass as one without a key, and replace nothing.
    """

    @wraps(init)
    def checked(*args: P.args, **kwargs: P.kwargs) -> None:
        if "key_header" not in kwargs:
            topic = repr(kwargs.get("topic", *args[1:2]))
            raise ConfigError(
                f"LastValueQueue({topic}) takes a topic as it is, and no key_header says what its key is.",
                options=["key_header"],
                hint=f"Open a declared queue with LastValueQueue.open({topic}), create one with "
                f"LastValueQueue.declare({topic}, key_header=...), or say key_header=None where the record key itself "
                "is the key.",
            )
        init(*args, **kwargs)

    return checked


class LastValueQueue(Managed, Generic[V]):
    """A named queue on a log-compacted topic, which holds the newest message for each value of its key header.

    Get one by `declare` (creates it, or verifies that it is so), by `open` (it must be declared), or by the
    constructor, which uses an existing compacted topic as it is, with no registry and no consumers:
    ``LastValueQueue("prices", key_header=None)`` takes the record key itself for the key.

    In asyncio ``await LastValueQueue.open_async(...)``: what waits for the cluster has a twin whose name ends in
    ``_async``, and `close` has `aclose`. A task that is cancelled meanwhile goes on at once; what was half open is
    closed in the background. What only manages a queue has no twin; `asyncio.to_thread` will do.

    Args:
        topic: the compacted topic.
        key_header: the message header that names the key; None when the record key itself is the key. It has to be
            said, since nothing tells it.
        bootstrap_servers, config, cluster: where the topic lies; see `connect`. A log that is given stays yours to
            close.
        value: the codec of values; `BYTES`, `TEXT`, `JSON` or one of your own.

    Raises:
        ConfigError: a name, header or option is malformed, or ``key_header`` is missing.
    """

    @_key_header_said
    def __init__(
        self,
        topic: str,
        *,
        key_header: str | None,
        keyless: KeylessPolicy = "pass",
        order: Order = "tail",
        key_mismatch: KeyMismatchPolicy = "record",
        value: Codec[V] = BYTES,  # type: ignore[assignment]  # what V is by default
        bootstrap_servers: str | None = None,
        config: ClientConfig | Mapping[str, Any] | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        definition = QueueDefinition(
            name=topic, topic=topic, key_header=key_header, keyless=keyless, order=order, key_mismatch=key_mismatch
        )
        with ExitStack() as opened:
            cluster = connect_within(opened, bootstrap_servers, config=config, cluster=cluster)
            self._set(definition, value, cluster, opened, declared=False)

    def _set(
        self, definition: QueueDefinition, value: Codec[V], cluster: Cluster, opened: ExitStack, *, declared: bool
    ) -> None:
        if not isinstance(value, Codec):
            raise ConfigError(
                f"value={value!r} is no codec.",
                options=["value"],
                hint="Use BYTES, TEXT, JSON, Codec(encode, decode) or serializers(...).",
            )
        self.definition = definition
        self.cluster = cluster
        self.value_codec = value
        self.declaration: Declaration | None = None
        self._declared = declared
        self._opened = opened.pop_all()  # and with it the duty to close

    @classmethod
    def _of(cls, definition: QueueDefinition, value: Codec[V], cluster: Cluster, opened: ExitStack) -> Self:
        queue = cls.__new__(cls)
        queue._set(definition, value, cluster, opened, declared=True)
        return queue

    @classmethod
    def open(
        cls,
        name: str,
        *,
        value: Codec[V] = BYTES,  # type: ignore[assignment]  # what V is by default
        bootstrap_servers: str | None = None,
        config: ClientConfig | Mapping[str, Any] | None = None,
        cluster: Cluster | None = None,
    ) -> Self:
        """A queue that is declared already, as it was declared.

        Raises:
            QueueNotDeclared: there is no queue of that name.
            TransportError: the cluster cannot be reached or refuses.
            ConfigError: an argument is none.
        """
        check_name("queue", name)
        with ExitStack() as opened:
            cluster = connect_within(opened, bootstrap_servers, config=config, cluster=cluster)
            return cls._of(Registry(cluster).get(name), value, cluster, opened)

    @classmethod
    def declare(
        cls,
        name: str,
        *,
        key_header: str | None,
        topic: str | None = None,
        keyless: KeylessPolicy = "pass",
        order: Order = "tail",
        key_mismatch: KeyMismatchPolicy = "record",
        non_destructive: bool = False,
        start: Start = "earliest",
        spec: TopicSpec | None = None,
        on_mismatch: OnMismatch = "raise",
        value: Codec[V] = BYTES,  # type: ignore[assignment]  # what V is by default
        bootstrap_servers: str | None = None,
        config: ClientConfig | Mapping[str, Any] | None = None,
        cluster: Cluster | None = None,
    ) -> Self:
        """Create a queue, or verify that the one of that name is just so. Nothing that exists is changed silently.

        Creates the topic where it is missing, with settings that keep a last value queue healthy; checks them where it
        exists. ``queue.declaration`` tells what was found, done, and could not be checked.

        Args:
            name: the queue's name, and its topic's unless ``topic`` is given. Several queues may share a topic.
            key_header: the message header that names the key; None when the record key itself is the key.
            start: whether a new queue holds what is in its topic already, or only what comes.
            spec: how to create the topic, should it be missing, and how one that exists should be.
            on_mismatch: what to do about an existing topic's settings that break a last value queue.
            keyless, order, key_mismatch, non_destructive: see `QueueDefinition`.

        Raises:
            ConfigError: a name, header or option is malformed (R3).
            QueueMismatch: the queue is declared with other properties, or its topic used with another key header.
            TopicMismatch: the topic exists and is not compacted.
            QueueNotDeclared: the queue is new, and a group of its name has positions in a part of its topic only.
            TransportError: the cluster cannot be reached or refuses.
        """
        definition = QueueDefinition(
            name=name,
            topic=topic or name,
            key_header=key_header,
            keyless=keyless,
            order=order,
            key_mismatch=key_mismatch,
            non_destructive=non_destructive,
        )
        choice("on_mismatch", on_mismatch, get_args(OnMismatch))
        choice("start", start, get_args(Start))
        if spec is not None:
            instance("spec", spec, TopicSpec, "For example spec=TopicSpec(partitions=6).")
        with ExitStack() as opened:
            cluster = connect_within(opened, bootstrap_servers, config=config, cluster=cluster)
            declaration = declare(cluster, definition, start=start, spec=spec or TopicSpec(), on_mismatch=on_mismatch)
            queue = cls._of(definition, value, cluster, opened)
            queue.declaration = declaration
            return queue

    @classmethod
    async def open_async(cls, name: str, *, value: Codec[V] = BYTES, **options: Any) -> Self:  # type: ignore[assignment]
        """As `open`, in asyncio."""
        return await in_thread(partial(cls.open, name, value=value, **options), undo=cls.close)

    @classmethod
    async def declare_async(
        cls,
        name: str,
        *,
        key_header: str | None,
        value: Codec[V] = BYTES,  # type: ignore[assignment]  # what V is by default
        **options: Any,
    ) -> Self:
        """As `declare`, in asyncio, with the same options. One that is cancelled may be carried out all the same."""
        call = partial(cls.declare, name, key_header=key_header, value=value, **options)
        return await in_thread(call, undo=cls.close)

    # ---------------------------------------------------------------- properties

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.definition.name

    @property
    def topic(self) -> str:
        """The topic it lies on."""
        return self.definition.topic

    @property
    def key_header(self) -> str | None:
        """The message header that names the key; None when the record key itself is the key."""
        return self.definition.key_header

    def __repr__(self) -> str:
        key = "of the record" if self.key_header is None else brief(self.key_header)
        return f"<LastValueQueue {self.name} on {self.topic}, key {key}>"

    def close(self) -> None:
        """Close the connection for questions, which others may share, unless its log was given.

        Its readers and writers are closed on their own, and before: they ask questions over it, too.
        """
        self._opened.close()

    async def aclose(self) -> None:
        """As `close`, in asyncio."""
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

    # ---------------------------------------------------------------- what it is used through

    def producer(self, *, transactional_id: str | None = None, max_block: float | None = None) -> Producer[V]:
        """A producer; see `Producer`."""
        return Producer(
            self.cluster,
            self.topic,
            key_header=self.key_header,
            keyless=self.definition.keyless,
            value=self.value_codec,
            transactional_id=transactional_id,
            max_block=max_block,
        )

    async def producer_async(self, **options: Any) -> Producer[V]:
        """As `producer`, in asyncio: one with a transactional id waits for the cluster."""
        return await in_thread(partial(self.producer, **options), undo=Producer.close)

    def view(
        self,
        *,
        undecodable: Undecodable = "raise",
        catch_up_timeout: float | None = 60.0,
        metadata_interval: float = 5.0,
    ) -> View[V]:
        """A live mapping from key to current value; see `View`."""
        return View(
            self.cluster,
            self.definition,
            self.value_codec,
            undecodable=undecodable,
            catch_up_timeout=catch_up_timeout,
            metadata_interval=metadata_interval,
        )

    def browser(
        self,
        *,
        dump: bool = True,
        replay_period: float | None = None,
        keys: Iterable[Key] | None = None,
        headers: Mapping[str, HeaderValue | None] | None = None,
        hide_consumed: bool = True,
        on_foreign_commits: OnForeignCommits = "refuse",
        refresh: float = 1.0,
        follow: bool = True,
        undecodable: Undecodable = "raise",
        catch_up_timeout: float | None = 60.0,
        metadata_interval: float = 5.0,
    ) -> Browser[V]:
        """A non-destructive reader: dump, end of dump, updates; see `Browser`.

        Args:
            hide_consumed: leave out what this queue's consumers have consumed (G2).
            on_foreign_commits: what to do where something else has committed with the queue's group, so that it is not
                known what they are: ``"refuse"`` raises `CommitMapRefused`, ``"ignore"`` goes by the offsets alone.
        """
        consumable = self._declared and not self.definition.non_destructive
        return Browser(
            self.cluster,
            self.definition,
            self.value_codec,
            dump=dump,
            replay_period=replay_period,
            keys=keys,
            headers=headers,
            group=self.definition.group if hide_consumed and consumable else None,
            on_foreign_commits=on_foreign_commits,
            refresh=refresh,
            follow=follow,
            undecodable=undecodable,
            catch_up_timeout=catch_up_timeout,
            metadata_interval=metadata_interval,
        )

    def consumer(
        self,
        *,
        undecodable: Undecodable = "raise",
        max_in_work: int = 1000,
        prefetch: int = 1,
        lock_timeout: float | None = None,
        max_deliveries: int | None = None,
        dead_letters: str | None = None,
        durable_counts: bool = False,
        commit_interval: float = 0.2,
        revoke_grace: float = 1.0,
        on_foreign_commits: OnForeignCommits = "refuse",
    ) -> Consumer[V]:
        """A destructive reader, one of those that share this queue; see `Consumer` also for what it raises.

        Raises:
            ConfigError: the queue was declared ``non_destructive`` (R13).
            QueueNotDeclared: it is a bare topic without a declared queue, so nothing can hold what is consumed.
        """
        return Consumer(
            self.cluster,
            self._consumed("consumed"),
            self.value_codec,
            undecodable=undecodable,
            max_in_work=max_in_work,
            prefetch=prefetch,
            lock_timeout=lock_timeout,
            max_deliveries=max_deliveries,
            dead_letters=dead_letters,
            durable_counts=durable_counts,
            commit_interval=commit_interval,
            revoke_grace=revoke_grace,
            on_foreign_commits=on_foreign_commits,
        )

    async def consumer_async(self, **options: Any) -> Consumer[V]:
        """As `consumer`, in asyncio, with the same options: it asks the cluster for what was consumed.

        ::

            async with await queue.consumer_async() as consumer: ...
        """
        return await in_thread(partial(self.consumer, **options), undo=Consumer.close)
