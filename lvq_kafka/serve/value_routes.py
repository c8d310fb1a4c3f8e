"""The value of a key: at once, if or when it changes, or when a position is reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from lvq_kafka.core.facts import Position
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.errors import CatchUpTimeout
from lvq_kafka.serve.calls import HttpCall
from lvq_kafka.serve.entity_tags import entity_tag, is_known
from lvq_kafka.serve.http_answers import HttpAnswer, problem, state_headers
from lvq_kafka.serve.long_answers import ending
from lvq_kafka.serve.media_types import chosen_type
from lvq_kafka.serve.operations import CACHED, IF_NONE_MATCH, AnswerForm, HttpOperation, schema_of
from lvq_kafka.serve.parameters import TEXT, Parameter
from lvq_kafka.serve.problems import HttpRefusal

__all__ = ["ENTRY", "VALUE", "answer_value"]

ENTRY = "application/vnd.lvq.entry+json"
"""The type of an entry as JSON. Where values are not JSON themselves, application/json is the same."""

_PATIENCE = 5.0  # seconds, for a position, unless the request says otherwise

VALUE = HttpOperation(
    "getValue",
    "Get the current value of a key, byte for byte, or as an entry.",
    {
        200: AnswerForm(
            "The value, in its queue's format; or the entry. `application/json` is the value where the queue declares "
            "JSON, and else the entry.",
            {
                "application/octet-stream": {},
                "text/plain": {"type": "string"},
                "application/json": {},
                ENTRY: schema_of("Entry"),
            },
            CACHED,
        ),
        304: AnswerForm("The client has it.", headers=CACHED),
    },
    query={
        "at-least": Parameter(
            TEXT,
            "The position of a write, `topic/partition/offset`. The answer is at least as new; it is 503 if that takes "
            f"longer than `wait`, or {_PATIENCE:g} seconds.",
        )
    },
    waits="Wait for another value than the client has, at most this number of seconds. A client that names none in "
    "`If-None-Match` waits for another than the one at the moment of its request.",
    headers={"If-None-Match": IF_NONE_MATCH},
    refusals=(406,),
)


async def answer_value(call: HttpCall) -> HttpAnswer:
    """Answer with the current value of a key."""
    asked = call.parameters()
    looker = _Looker(call)
    call.queue.check_complete()
    wait = asked.get("wait")
    if "at-least" in asked:
        await _reach(call, asked["at-least"], _PATIENCE if wait is None else wait)
        return looker.answer()
    if not wait:
        return looker.answer()
    with call.served.long_answers.place():
        changed = await call.served.long_answers.while_wanted(looker.wait(wait), call.peer)
    return looker.answer() if changed is None else changed


class _Looker:
    """Answers one request about a key, as often as it has to be looked up."""

    def __init__(self, call: HttpCall) -> None:
        self._call = call
        value = call.queue.media_type
        others = [ENTRY] if value == "application/json" else [ENTRY, "application/json"]
        self._type = chosen_type(call.request.header("accept"), [value, *others])
        self._as_entry = self._type in others
        self._known = call.request.header("if-none-match")

    def _look_up(self) -> tuple[str, Callable[[], HttpAnswer]]:
        """Return the tag of the value, empty if there is none, and a maker of the answer."""
        queue, key = self._call.queue, self._call.key
        status = queue.view.status  # before the value, which is then no older than it says
        entry, cut = queue.view.look_up(key)
        state = state_headers(status, cut.offsets)
        headers = [*state, ("vary", "accept"), self._call.cache_control]
        if entry is None:
            detail = f"{queue.name} has no value for the key {quoted(key.decode('utf-8', 'replace'))}."
            return "", lambda: problem(HttpRefusal(404, detail, headers=state))
        tag = entity_tag(cut.topic_id, entry.position, f"{queue.form}-entry" if self._as_entry else queue.form)
        headers.append(("etag", tag))
        if is_known(tag, self._known):
            return tag, lambda: HttpAnswer(304, headers)
        kind = f"{self._type}; charset=utf-8" if self._type == "text/plain" else self._type
        body = queue.line(entry) + b"\n" if self._as_entry else entry.value
        return tag, lambda: HttpAnswer(200, [("content-type", kind), *headers], body)

    def answer(self) -> HttpAnswer:
        """Return the answer at this moment."""
        return self._look_up()[1]()

    async def wait(self, limit: float) -> HttpAnswer:
        """Return the answer once it is another than the client knows, or in ``limit`` seconds.

        A client that names no value that it knows waits for another than the present one.
        """
        with self._call.queue.view.watch(keys=[self._call.key]) as watch:
            tag, make = self._look_up()
            if self._known is not None and not is_known(tag, self._known):
                return make()
            first = tag
            with suppress(TimeoutError):
                async with asyncio.timeout(limit):
                    async for _ in watch:
                        tag, make = self._look_up()
                        if tag != first:
                            return make()
        return self.answer()


async def _reach(call: HttpCall, position: str, limit: float) -> None:
    """Wait until the view is as far as a position.

    Raises:
        HttpRefusal: it is in a partition that the topic does not have, or not by then.
        CatchUpTimeout: it is not in time.
        ConfigError: it is not a position of this queue.
    """
    view = call.queue.view
    at = Position.parse(position)
    if at.offset >= 0:
        with suppress(CatchUpTimeout):
            view.wait_for(at, 0)  # the usual case, without a thread
            return

    async def wait() -> bool:
        await view.wait_for_async(at, limit)
        return True

    with call.served.long_answers.place(), call.served.long_answers.thread():
        try:
            reached = await call.served.long_answers.while_wanted(wait(), call.peer)
        except CatchUpTimeout:
            if view.state == "caught-up" and at.partition not in view.cut.offsets:  # it would know of a new one
                raise _no_partition(at) from None
            raise
        if not reached:
            raise ending()


def _no_partition(at: Position) -> HttpRefusal:
    return HttpRefusal(
        400,
        f"The topic {at.topic} has no partition {at.partition}.",
        hint="Give the position that a write was answered with.",
        kind="ConfigError",
    )
