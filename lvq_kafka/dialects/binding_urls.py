"""Binding URLs, as the JMS client of Broker-J for AMQP 0-x writes them.

They have the form ``class://exchange/destination/queue?option='value'&...``.
"""

from __future__ import annotations

import re

from lvq_kafka.core.queue.option_values import REPLAY_PERIOD, SELECTORS
from lvq_kafka.dialects.address import Address, AddressDraft
from lvq_kafka.dialects.url_options import decoded, url_options

__all__ = ["BINDING_CLASSES", "parse_binding_url"]

BINDING_CLASSES = ("direct", "topic", "fanout", "headers")
"""The classes of exchanges."""

_URL = re.compile(
    r"(?:BURL:)?(?P<kind>[a-z]+)://(?P<exchange>[^/?]*)"
    r"(?:/(?P<destination>[^/?]*))?(?:/(?P<queue>[^/?]*))?(?P<options>$|\?)"
)
_OF_QUEUE = ("durable", "exclusive", "autodelete")
_KNOWN = dict.fromkeys(("routingkey", "bindingkey", "browse", *_OF_QUEUE, REPLAY_PERIOD, *SELECTORS), "")
_NO_EXCHANGE = "there are no exchanges, and a message goes to the queue of its address"


def parse_binding_url(text: str) -> Address:
    """Parse a binding URL.

    Raises:
        ConfigError: it is malformed, or asks for something that no queue of this library has; says where.
    """
    draft = AddressDraft(text)
    url = _URL.match(text)
    if url is None:
        raise draft.wrong("expected a binding URL", 0, "For example direct://amq.direct/prices/prices?browse='true'.")
    if url["kind"] != "direct":
        hint = "Write direct://amq.direct/QUEUE/QUEUE; with browse='true', each receiver gets all messages."
        raise draft.refused(f"{url['kind']}://", url.start("kind"), _NO_EXCHANGE, hint)
    if url["exchange"] not in ("", "amq.direct"):
        hint = "Write direct://amq.direct/QUEUE/QUEUE."
        raise draft.refused(f"the exchange {url['exchange']}", url.start("exchange"), _NO_EXCHANGE, hint)
    part = "queue" if url["queue"] else "destination"
    queue = decoded(draft, url[part] or "", url.start(part))
    if not queue:
        raise draft.wrong("expected the name of a queue", max(url.start(part), url.end("exchange")))
    draft.note("queue", queue, url.start(part))
    _check_routing(draft, "destination", decoded(draft, url["destination"] or "", 0), queue, url.start("destination"))
    seen: set[str] = set()
    for name, quoted, at in url_options(draft, url.end() if url["options"] else len(text)):
        value = quoted[1:-1] if len(quoted) > 1 and quoted[0] == quoted[-1] and quoted[0] in "'\"" else quoted
        if name in seen:
            raise draft.wrong(f"{name} is given twice", at, "Give it once.", option=name)
        seen.add(name)
        if name in ("routingkey", "bindingkey"):
            _check_routing(draft, name, value, queue, at)
        elif name in _OF_QUEUE:
            draft.option(name, value, at)
        elif name == "browse":
            draft.note("mode", "browse" if draft.truth(name, value, at) else "consume", at, name)
        elif name == REPLAY_PERIOD:
            draft.replay(name, value, at)
        elif name in SELECTORS:
            draft.select(name, value, at)
        else:
            raise draft.unknown(name, at, "in a binding URL", _KNOWN)
    return draft.finish()


def _check_routing(draft: AddressDraft, name: str, key: str, queue: str, at: int) -> None:
    """Check that messages for a routing key are messages of the queue."""
    if key not in ("", queue):
        raise draft.refused(f"the {name} {key}", at, _NO_EXCHANGE, f"Write direct://amq.direct/{queue}/{queue}.")
