"""Every parameter of the public API that takes a function, with everything that is none.

An async function, a generator function or a function of other arguments would be called and do nothing, or fail for
every message. It is a `ConfigError` that names the parameter, before anything is done. The parameters are discovered
from signatures, so a new one fails here until it is in the table.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from decimal import Decimal
from functools import partial
from operator import attrgetter, itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints, is_typeddict
from unittest.mock import AsyncMock, MagicMock

import pytest

import lvq_kafka
import lvq_kafka.embedded
import lvq_kafka.testing
import lvq_spark
from lvq_kafka import TEXT, AttachedView, ClientConfig, Codec, LastValueQueue, attach, serializers
from lvq_kafka.core.text.validation import function
from lvq_kafka.embedded import EmbeddedBroker, ensure_jars, start_daemon
from lvq_kafka.errors import ConfigError, LVQError
from lvq_kafka.reading.browser import Browser
from lvq_kafka.reading.view import View
from lvq_kafka.testing import MemoryCluster
from tests.waiting import eventually


class Opened:
    """One object of each kind that takes a function, on a queue with messages."""

    def __init__(self, cluster: MemoryCluster, stack: ExitStack) -> None:
        self.cluster = cluster
        self._stack = stack
        self.queue = LastValueQueue.declare("q", key_header="k", value=TEXT, cluster=cluster)
        producer = stack.enter_context(self.queue.producer())
        self.receipt = producer.put("a", "1")
        self.receipt.result(10)
        self.view = stack.enter_context(self.queue.view())
        self.consumer = stack.enter_context(self.queue.consumer())
        delivery = self.consumer.acquire(10)
        assert delivery is not None
        self.settlement = delivery.ack()
        self.of_reader = (cluster, self.queue.definition, TEXT)

    def attached(self) -> AttachedView[str]:
        place = Path(self._stack.enter_context(TemporaryDirectory())) / "store"
        self._stack.enter_context(self.queue.view(store=place))
        return self._stack.enter_context(attach(place, value=TEXT))


class Taker(NamedTuple):
    """A parameter that takes a function."""

    name: str
    give: Callable[[Opened, Any], object]
    arguments: int
    none: bool = False
    """Whether it may be left out by giving None."""
    classes: bool = False
    """Whether a class will do."""
    text: bool = False
    """Whether it may be text instead."""


def property_taker(name: str) -> Taker:
    return Taker(name, lambda o, f: ClientConfig("localhost", {name: f}), 1, classes=True)


def where(give: Callable[[Opened, Any], object]) -> list[Taker]:
    return [Taker("where", give, 1, none=True)]


TAKERS: dict[str, list[Taker]] = {
    "Codec.__init__(encode)": [Taker("encode", lambda o, f: Codec(f, bytes.decode), 1, classes=True)],
    "Codec.__init__(decode)": [Taker("decode", lambda o, f: Codec(str.encode, f), 1, classes=True)],
    "serializers(serializer)": [Taker("serializer", lambda o, f: serializers(f, print), 2, none=True, classes=True)],
    "serializers(deserializer)": [
        Taker("deserializer", lambda o, f: serializers(print, f), 2, none=True, classes=True)
    ],
    "LastValueQueue.view(where)": where(lambda o, f: o.queue.view(where=f)),
    "LastValueQueue.browser(where)": where(lambda o, f: o.queue.browser(where=f)),
    "View.__init__(where)": where(lambda o, f: View(*o.of_reader, where=f)),
    "Browser.__init__(where)": where(lambda o, f: Browser(*o.of_reader, where=f)),
    "View.watch(where)": where(lambda o, f: o.view.watch(where=f)),
    "View.on_change(where)": where(lambda o, f: o.view.on_change(print, where=f)),
    "AttachedView.watch(where)": where(lambda o, f: o.attached().watch(where=f)),
    "AttachedView.on_change(where)": where(lambda o, f: o.attached().on_change(print, where=f)),
    "AttachedView.on_change(callback)": [Taker("callback", lambda o, f: o.attached().on_change(f), 1)],
    "View.index(by)": [Taker("by", lambda o, f: o.view.index("an index", by=f), 1, text=True)],
    "View.on_change(callback)": [Taker("callback", lambda o, f: o.view.on_change(f), 1)],
    "Consumer.run(handler)": [Taker("handler", lambda o, f: o.consumer.run(f), 1)],
    "Settlement.add_done_callback(callback)": [Taker("callback", lambda o, f: o.settlement.add_done_callback(f), 1)],
    "Receipt.add_done_callback(callback)": [Taker("callback", lambda o, f: o.receipt.add_done_callback(f), 1)],
    "MemoryCluster.__init__(clock)": [Taker("clock", lambda o, f: MemoryCluster(clock=f), 0, classes=True)],
    "MemoryCluster.compact(choose)": [Taker("choose", lambda o, f: o.cluster.compact("q", choose=f), 1)],
    "ClientConfig.__init__(properties)": [property_taker(name) for name in ("oauth_cb", "stats_cb", "throttle_cb")],
    "ensure_jars(progress)": [Taker("progress", lambda o, f: ensure_jars(f), 3, none=True)],
    "EmbeddedBroker.__init__(progress)": [Taker("progress", lambda o, f: EmbeddedBroker(progress=f), 3, none=True)],
    "start_daemon(progress)": [Taker("progress", lambda o, f: start_daemon(progress=f), 3, none=True)],
}
"""By the parameter as it is discovered."""

GIVEN_BY_THE_LIBRARY = {
    "Consumer.__init__(reclaim)",
    "Delivery.__init__(read)",
    "Feed.__init__(open_producer)",
    "Finding.remedy(spell)",
    "Finding.worded(spell)",
    "LVQError.worded(spell)",
    "Session.__init__(transact)",
    "Transaction.__init__(member)",
    "Watch.__init__(dump)",
    "Watch.__init__(to_event)",
    "Watch.resume(changed_since)",
}
"""Parameters for which only the library has arguments."""


def discovered() -> Iterator[str]:
    """Yield each public parameter whose type has a function in it."""
    for module in (lvq_kafka, lvq_kafka.testing, lvq_kafka.embedded, lvq_spark):
        for name in module.__all__:
            public = getattr(module, name)
            if inspect.isclass(public):
                for each, member in inspect.getmembers(public):
                    method = inspect.unwrap(getattr(member, "__func__", member))
                    own = inspect.isfunction(method) and method.__module__.startswith(("lvq_kafka", "lvq_spark"))
                    if own and (each == "__init__" or not each.startswith("_")):
                        yield from (f"{name}.{each}({parameter})" for parameter in taken_by(method))
            elif inspect.isfunction(public):
                yield from (f"{name}({parameter})" for parameter in taken_by(inspect.unwrap(public)))


def taken_by(method: Callable[..., Any]) -> Iterator[str]:
    for parameter, hint in get_type_hints(method).items():
        if parameter == "return":
            continue
        options = [part for part in (get_origin(each) or each for each in get_args(hint)) if is_typeddict(part)]
        for option in options:  # Unpack[…Options]
            yield from (name for name, kind in get_type_hints(option).items() if has_function(kind))
        if not options and has_function(hint):
            yield parameter


def has_function(hint: object) -> bool:
    return get_origin(hint) is Callable or any(has_function(part) for part in get_args(hint))


async def returns(*arguments: object) -> bool:
    raise AssertionError("nobody awaits it")


async def yields_in_asyncio(*arguments: object) -> Any:
    yield True


def yields(*arguments: object) -> Any:
    yield True


class Awaited:
    async def __call__(self, *arguments: object) -> bool:
        raise AssertionError("nobody awaits it")

    async def method(self, *arguments: object) -> bool:
        raise AssertionError("nobody awaits it")

    @classmethod
    async def of_class(cls, *arguments: object) -> bool:
        raise AssertionError("nobody awaits it")


class Takes:
    """A callable object of a number of arguments."""

    def __init__(self, arguments: int) -> None:
        self.__signature__ = inspect.Signature(
            [inspect.Parameter(f"a{number}", inspect.Parameter.POSITIONAL_ONLY) for number in range(arguments)]
        )

    def __call__(self, *arguments: object) -> bool:
        return True


OF = (lambda: 1, lambda a: 1, lambda a, b: 1, lambda a, b, c: 1, lambda a, b, c, d: 1, lambda a, b, c, d, e: 1)
"""Functions of a number of arguments."""


def wrong_for(taker: Taker) -> Mapping[str, object]:
    """Return everything that is not a function for this parameter."""
    wrong: dict[str, object] = {
        "async def": returns,
        "async generator": yields_in_asyncio,
        "generator": yields,
        "partial of async def": partial(returns, 1),
        "partial of a partial of a generator": partial(partial(yields, 1), 2),
        "object with an async __call__": Awaited(),
        "async method": Awaited().method,
        "async class method": Awaited.of_class,
        "AsyncMock": AsyncMock(),
        "one argument too many": OF[taker.arguments + 1],
        "two too many, one of them bound": partial(OF[taker.arguments + 2], 1),
        "a name that is needed": lambda *arguments, name: 1,
        "text": "print",
        "number": 5,
    }
    if taker.arguments:
        wrong["one argument too few"] = OF[taker.arguments - 1]
    if not taker.none:
        wrong["None"] = None
    if taker.text:
        del wrong["text"]
    if not taker.classes:
        wrong["class"] = Decimal
    return wrong


EACH = {(name, taker.name): taker for name, takers in TAKERS.items() for taker in takers}


@pytest.fixture
def opened(memory_cluster: MemoryCluster) -> Iterator[Opened]:
    with ExitStack() as stack:
        yield Opened(memory_cluster, stack)


def test_every_parameter_that_takes_a_function_is_in_the_table() -> None:
    assert {*discovered()} == {*TAKERS} | GIVEN_BY_THE_LIBRARY


@pytest.mark.parametrize("taker", EACH.values(), ids=list(map(" ".join, EACH)))
def test_a_value_that_is_not_a_function_is_refused_by_name(opened: Opened, taker: Taker) -> None:
    for what, wrong in wrong_for(taker).items():
        with pytest.raises(ConfigError, match=rf"^{taker.name}\b") as caught:
            taker.give(opened, wrong)
        assert caught.value.options == (taker.name,), what
        assert caught.value.hint, what


def test_an_async_option_of_a_watch_is_refused_in_asyncio_too(opened: Opened) -> None:
    with pytest.raises(ConfigError, match=r"where=.* is an async function"):
        asyncio.run(opened.view.watch_async(where=returns))


@pytest.mark.parametrize("arguments", [0, 1, 2, 3])
def test_anything_that_may_be_called_is_a_function(arguments: int) -> None:
    class Method:
        def call(self, *arguments: object) -> None: ...

    right: list[object] = [
        OF[arguments],
        partial(OF[arguments + 1], 1),
        partial(lambda *arguments, name: 1, name=1),
        partial(lambda *arguments, name=0: 1, name=1),
        lambda *arguments: 1,
        lambda *arguments, name=1: 1,
        Method().call,
        partial(Method.call, 1),
        Takes(arguments),
        MagicMock(),
        print,
        max,  # has no signature that can be read
        dict,
    ]
    if arguments == 1:
        right += [Decimal, int, str, attrgetter("value"), itemgetter(0), [].append, "".join, bytes.decode]
    for each in right:
        function("option", each, *"abc"[:arguments], hint="a hint")


def test_a_class_decodes() -> None:
    codec = Codec(lambda value: str(value).encode(), lambda data: Decimal(data.decode()))
    assert codec.decode_at(b"1.5", ("t", 0, 0)) == Decimal("1.5")
    assert Codec(str.encode, bytearray).decode_at(b"1.5", ("t", 0, 0)) == bytearray(b"1.5")


def test_a_coroutine_behind_a_plain_function_selects_nothing_and_is_counted(opened: Opened) -> None:
    for hidden in (lambda entry: returns(entry), lambda entry: yields(entry)):
        with opened.queue.view(where=hidden) as view:
            assert dict(view) == {}
            assert view.unjudged == 1
            assert "it returned a" in str(view.selection_failure)


def test_a_coroutine_behind_a_plain_callback_is_logged(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    opened.view.on_change(lambda event: returns(event))
    with opened.queue.producer() as producer:
        producer.put("b", "2").result(10)
    eventually(lambda: "a change callback has done nothing: it returned a coroutine" in caplog.text)


def test_nothing_was_done_when_a_handler_is_refused(opened: Opened) -> None:
    with pytest.raises(LVQError):
        opened.consumer.run(returns)
    assert opened.consumer.stats.delivered == 1
