"""A link to another broker over AMQP 1.0, by Qpid Proton.

It reconnects by itself, and reports what it waits for. Proton is the protocol alone here. One thread moves bytes
between it and a socket, so there is one place for each limit in time; and TLS is Python's own, which trusts the
authorities of this machine.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import ssl
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, Literal, NamedTuple, Protocol

from lvq_kafka.bridging.broker_address import BrokerAddress
from lvq_kafka.core.text.quoting import bounded
from lvq_kafka.errors import BrokerRefused, ConfigError, LVQError
from lvq_kafka.runtime.extras import needing
from lvq_kafka.runtime.notice import Notice

__all__ = ["AmqpLink", "Disposition", "LinkListener"]

logger = logging.getLogger("lvq_kafka.bridge")

Disposition = Literal["accepted", "rejected", "released", "too large"]
"""The other broker's decision on a message. Those that it has modified are released, too."""

_CONNECT = 10.0  # seconds for a connection and its TLS handshake
_ATTACH = 30.0  # seconds from there until the link is there
_SILENCE = 30.0  # seconds without a frame after which the connection counts as lost
_CLOSING = 5.0  # seconds for the broker to answer the close
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0  # seconds between two attempts to connect
_FRAME = 16 << 10  # bytes
_AHEAD = 8 << 20  # bytes that Proton holds of messages that were not read from it
_PIECE = 1 << 20  # bytes that are read from it, or from the socket, at once

_TRANSIENT = (
    "amqp:connection:forced",
    "amqp:resource-limit-exceeded",
    "amqp:internal-error",
    "amqp:link:detach-forced",
)
"""Conditions that may pass by themselves."""


class LinkListener(Protocol):
    """Receives the events of a link.

    All calls come from the link's own thread, and must not block.
    """

    def attached(self, attachment: int, product: str) -> None:
        """Note that the link is there, for the first time or again.

        It has no credit. Attachments are numbered. The other broker says what product it is, or nothing.
        """

    def detached(self) -> None:
        """Note that the link is gone.

        Messages that are unsettled will be delivered again, or have to be sent again.
        """

    def arrived(self, tag: int, data: bytes | None, size: int) -> None:
        """Receive a message; without data, it is larger than the limit."""

    def drained(self) -> None:
        """Note that the broker has no more messages, and has given back its credit."""

    def settled(self, tag: int, outcome: Disposition, why: str) -> None:
        """Note the broker's decision on a message that was sent."""

    def failed(self, error: LVQError) -> None:
        """Note that the link has ended for good."""


class _Lost(Exception):
    """The connection is gone, and another attempt may succeed; the text says why."""


class _ErrorCondition(NamedTuple):
    """A condition by which a broker ends a connection or a link."""

    name: str
    description: str


class AmqpLink:
    """A link that receives messages, or sends them.

    It is served by a thread of its own. If the connection is lost, it connects again, with growing pauses, for as long
    as it takes. A refusal ends it only if the link was never there: after that, the broker may be just starting.

    Args:
        address: the broker, and the queue there.
        listener: receives the events.
        sends: whether it sends messages.
        browses: whether messages stay in the other queue.
        most_bytes: how many bytes of messages may have been handed to the listener and not been freed, and how large a
            message may be.

    Raises:
        MissingExtra: the extra ``bridge`` is not installed.
        ConfigError: a file for TLS cannot be read.
    """

    def __init__(
        self,
        address: BrokerAddress,
        listener: LinkListener,
        *,
        sends: bool = False,
        browses: bool = False,
        most_bytes: int = 64 << 20,
    ) -> None:
        with needing("bridge", "A bridge"):
            import proton
        self.trouble = ""
        """The broker that it waits for, and why; empty while the link is there."""
        self.address = address
        self._proton: Any = proton
        self._listener = listener
        self._sends = sends
        self._browses = browses
        self._most_bytes = most_bytes
        self._tls = _context(address) if address.tls else None
        self._name = f"lvq-bridge-{uuid.uuid4()}"
        self._calls: deque[tuple[int, Callable[[_AmqpConnection], object]]] = deque()
        self._attachment = 0
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._tags = count()
        self._closing = threading.Event()
        self._was_attached = False
        self._flaps = False
        """True if the link comes and goes, which is reported once."""
        self._notice = Notice()
        self._thread = threading.Thread(target=self._run, name="lvq-bridge-amqp", daemon=True)

    def start(self) -> None:
        """Connect, in the background."""
        self._thread.start()

    # A call for an attachment that is gone is ignored.

    def grant(self, attachment: int, number: int, *, drain: bool = False) -> None:
        """Let the broker send this many more messages.

        With ``drain``, it gives the credit back for which it has none.
        """
        self._call(attachment, lambda connection: connection.grant(number, drain))

    def conclude(self, attachment: int, deliveries: Sequence[tuple[int, bool]]) -> None:
        """Accept deliveries by their tags, or leave them in the other queue.

        This frees their bytes.
        """
        self._call(attachment, lambda connection: connection.conclude(deliveries))

    def renew(self, attachment: int) -> None:
        """Disconnect, and connect again."""
        self._call(attachment, lambda connection: connection.close())

    def send(self, attachment: int, tag: int, data: bytes) -> None:
        """Send a message, once there is credit."""
        self._call(attachment, lambda connection: connection.send(tag, data))

    def close(self) -> None:
        """Carry out the calls before, and disconnect. Undecided messages stay in their queue."""
        self._closing.set()
        self._wake()
        if self._thread.ident is not None:
            self._thread.join(_CONNECT + _CLOSING)
        for end in (self._wake_reader, self._wake_writer):
            end.close()

    # ---------------------------------------------------------------- the thread

    def _call(self, attachment: int, call: Callable[[_AmqpConnection], object]) -> None:
        self._calls.append((attachment, call))
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it will wake up; closed: there is nothing to wake
            self._wake_writer.send(b"\0")

    def _run(self) -> None:
        pause = 0.0
        try:
            while not self._closing.is_set():
                since = None
                try:
                    self._attachment += 1
                    with self._connected() as connection:
                        for product in connection.run():
                            since = time.monotonic()
                            self._attached(product)
                    pause = 0.0
                except _Lost as lost:
                    lasted = since is not None and time.monotonic() - since > _LONGEST_PAUSE
                    if lasted:
                        self._notice.ends()
                    self._flaps = since is not None and not lasted
                    self._report(str(lost))
                    pause = _FIRST_PAUSE if lasted else min(max(2 * pause, _FIRST_PAUSE), _LONGEST_PAUSE)
                finally:
                    if since is not None:
                        self._listener.detached()
                self._closing.wait(pause)
        except LVQError as error:
            self._listener.failed(error)
        except Exception as error:  # noqa: BLE001  # otherwise the bridge would wait for a thread that is gone
            failure = BrokerRefused(f"The connection to {self.address} failed: {error!r}.", condition="")
            failure.__cause__ = error
            self._listener.failed(failure)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[_AmqpConnection]:
        address = self.address
        try:
            plain = socket.create_connection((address.host, address.port), _CONNECT)
        except OSError as error:
            raise _Lost(_reason(error)) from None
        with contextlib.ExitStack() as opened:
            opened.callback(plain.close)
            stream = plain
            if self._tls is not None:
                try:
                    stream = self._tls.wrap_socket(plain, server_hostname=address.host)
                except ssl.SSLError as error:
                    raise self._no_tls(error) from None
                except OSError as error:
                    raise _Lost(_reason(error)) from None
                opened.callback(stream.close)
            stream.setblocking(False)
            connection = _AmqpConnection(self, _Stream(stream), self._wake_reader, self._closing)
            opened.callback(connection.free)
            yield connection

    def _attached(self, product: str) -> None:
        if not self._flaps and self._notice.ends():
            logger.warning("%s answers again", self.address)
        self.trouble = ""
        self._was_attached = True
        self._listener.attached(self._attachment, product)

    def _report(self, reason: str) -> None:
        self.trouble = f"waiting for {self.address}: {bounded(reason)}"
        if self._notice.begins():
            logger.warning("no link to %s: %s; trying again until there is one", self.address, bounded(reason))

    def _no_tls(self, error: ssl.SSLError) -> Exception:
        reason = getattr(error, "verify_message", "") or error.reason or str(error)
        if self._was_attached:
            return _Lost(f"TLS: {reason}")
        hint = "Name the authority that has signed its certificate with `ssl_ca`."
        if not isinstance(error, ssl.SSLCertVerificationError):
            hint = "Check that this port speaks TLS; amqp:// does without."
        return BrokerRefused(
            f"There is no TLS with {self.address}: {reason}.",
            condition="",
            options=["ssl_ca"] if isinstance(error, ssl.SSLCertVerificationError) else (),
            hint=hint,
        )

    def refused(self, what: str, refusal: _ErrorCondition) -> Exception:
        """Return the error for a refusal: to try again, or for good."""
        said = ": ".join(filter(None, refusal)) or "it gave no reason"
        if self._was_attached or refusal.name in _TRANSIENT:
            return _Lost(said)
        hint = ""
        if refusal.name == "amqp:unauthorized-access":
            hint = "Check the user in the address, and LVQ_AMQP_PASSWORD."
        elif refusal.name == "amqp:not-found":
            hint = "Check the name of the queue in the address."
        return BrokerRefused(f"{self.address} refuses {what}: {said}.", condition=refusal.name, hint=hint)

    # ---------------------------------------------------------------- for the connection

    def next_tag(self) -> int:
        """Return the tag of the next delivery."""
        return next(self._tags)

    def pop_call(self) -> Callable[[_AmqpConnection], object] | None:
        """Return the next call from outside, of those for this attachment."""
        while self._calls:
            attachment, call = self._calls.popleft()
            if attachment == self._attachment:
                return call
        return None


class _Stream:
    """A socket that never blocks, with or without TLS."""

    def __init__(self, stream: socket.socket) -> None:
        self.socket = stream
        self._waits_to_write = False

    def read(self, size: int) -> bytes | None:
        """Return bytes; none at the end, and None if there are none yet."""
        try:
            return self.socket.recv(size)
        except (BlockingIOError, ssl.SSLWantReadError, InterruptedError):
            return None
        except ssl.SSLWantWriteError:
            self._waits_to_write = True
            return None
        except OSError as error:
            raise _Lost(_reason(error)) from None

    def write(self, data: bytes) -> int:
        """Return how many bytes were written."""
        self._waits_to_write = False
        try:
            return self.socket.send(data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError, InterruptedError):
            return 0
        except OSError as error:
            raise _Lost(_reason(error)) from None

    @property
    def holds(self) -> bool:
        """True if TLS has bytes that the selector does not know of."""
        return isinstance(self.socket, ssl.SSLSocket) and self.socket.pending() > 0

    @property
    def waits_to_write(self) -> bool:
        """True if TLS has to write before it can read."""
        return self._waits_to_write


class _AmqpConnection:
    """One connection, with its session and its link."""

    def __init__(self, owner: AmqpLink, stream: _Stream, wake: socket.socket, closing: threading.Event) -> None:
        self._owner = owner
        self._listener = owner._listener
        self._sends = owner._sends
        self._stream = stream
        self._wake = wake
        self._closing = closing
        self._proton = proton = owner._proton
        address = owner.address
        self._collector = proton.Collector()
        self._connection = proton.Connection()
        self._connection.collect(self._collector)
        self._connection.container = owner._name
        self._connection.hostname = address.virtual_host or address.host
        self._transport = transport = proton.Transport()
        transport.max_frame_size = _FRAME
        transport.idle_timeout = _SILENCE
        sasl = transport.sasl()
        sasl.allow_insecure_mechs = True  # Proton does not see that the socket has TLS
        if address.user is None:
            sasl.allowed_mechs("ANONYMOUS")
        else:
            sasl.allowed_mechs("PLAIN")
            self._connection.user = address.user
            self._connection.password = address.password
        transport.bind(self._connection)
        self._connection.open()
        session = self._connection.session()
        session.incoming_capacity = _AHEAD
        session.open()
        self._link = self._open_link(session, address.node)
        self._attached = False
        self._draining = False
        self._ending = 0.0  # until when the broker may answer the close
        self._deliveries: dict[int, Any] = {}  # unsettled, by tag
        self._waiting: deque[tuple[int, bytes]] = deque()  # to send
        self._pieces: list[bytes] = []  # of the message that arrives
        self._arriving = 0  # its bytes
        self._sizes: dict[int, int] = {}  # of messages that were handed over, in bytes
        self._held = 0  # their sum
        self._selector = selectors.DefaultSelector()
        self._selector.register(stream.socket, selectors.EVENT_READ)
        self._selector.register(wake, selectors.EVENT_READ)

    def _open_link(self, session: Any, node: str) -> Any:
        proton = self._proton
        if self._sends:
            link = session.sender(self._owner._name)
            link.target.address = node
        else:
            link = session.receiver(self._owner._name)
            link.source.address = node
            terminus = proton.Terminus
            mode = terminus.DIST_MODE_COPY if self._owner._browses else terminus.DIST_MODE_MOVE
            link.source.distribution_mode = mode
        link.snd_settle_mode = proton.Link.SND_UNSETTLED
        link.rcv_settle_mode = proton.Link.RCV_FIRST
        link.open()
        return link

    def free(self) -> None:
        """Free what Proton holds."""
        self._selector.close()
        self._deliveries.clear()
        self._transport.unbind()
        self._collector.release()
        self._connection.free()

    # ---------------------------------------------------------------- the loop

    def run(self) -> Iterator[str]:
        """Serve the connection until it is closed.

        It yields the name of the other broker's product once, when the link is there.
        """
        give_up = time.monotonic() + _ATTACH
        announced = False
        while True:
            while (call := self._owner.pop_call()) is not None:
                call(self)
            if self._closing.is_set():
                self.close()
            self._handle_events()
            if self._attached and not announced:
                announced = True
                yield str((self._connection.remote_properties or {}).get("product", ""))
                continue  # it has called back
            if self._ending and (self._closed() or time.monotonic() > self._ending):
                return
            if not announced and time.monotonic() > give_up:
                raise _Lost(f"it has not opened the link within {_ATTACH:g} s")
            self._move_bytes(give_up if not announced else None)

    def close(self) -> None:
        """Begin to close the connection."""
        if not self._ending:
            self._ending = time.monotonic() + _CLOSING
            self._connection.close()

    def _closed(self) -> bool:
        return bool(self._connection.state & self._proton.Endpoint.REMOTE_CLOSED)

    def _move_bytes(self, until: float | None) -> None:
        now = time.monotonic()
        tick = self._transport.tick(now)
        pending, capacity = self._transport.pending(), self._transport.capacity()
        if pending < 0 and capacity < 0:
            raise self._owner.refused("the connection", self._condition())
        deadline = min(filter(None, (tick, until, self._ending, now + _SILENCE)))
        wanted = selectors.EVENT_READ if capacity > 0 else 0
        if pending > 0 or self._stream.waits_to_write:
            wanted |= selectors.EVENT_WRITE
        self._watch(wanted)
        holds = capacity > 0 and self._stream.holds
        for key, ready in self._selector.select(0 if holds else max(0.0, deadline - now)):
            if key.fileobj is self._wake:
                with contextlib.suppress(BlockingIOError):
                    self._wake.recv(4096)
            else:
                holds = holds or bool(ready & selectors.EVENT_READ)
        if pending > 0 and (written := self._stream.write(self._transport.peek(min(pending, _PIECE)))):
            self._transport.pop(written)
        if holds and (data := self._stream.read(min(capacity, _PIECE))) is not None:
            if not data:
                self._transport.close_tail()
                self._handle_events()
                raise self._ended()
            self._transport.push(data)

    def _watch(self, wanted: int) -> None:
        watched = self._selector.get_map().get(self._stream.socket)
        if not wanted:
            if watched is not None:
                self._selector.unregister(self._stream.socket)
        elif watched is None:
            self._selector.register(self._stream.socket, wanted)
        elif watched.events != wanted:
            self._selector.modify(self._stream.socket, wanted)

    def _ended(self) -> Exception:
        if self._ending:
            return _Lost("closed")
        refusal = self._condition()
        return self._owner.refused("the connection", refusal) if refusal.name else _Lost("it has closed the connection")

    def _condition(self) -> _ErrorCondition:
        for condition in (self._connection.remote_condition, self._transport.condition):
            if condition is not None and condition.description != "connection aborted":  # only that the stream ended
                return _condition_of(condition)
        return _condition_of(None)

    def _handle_events(self) -> None:
        proton = self._proton
        event_types = proton.Event
        while (event := self._collector.peek()) is not None:
            kind = event.type
            if kind is event_types.DELIVERY:
                if self._sends:
                    self._outcome(event.delivery)
                else:
                    self._receive()
            elif kind is event_types.LINK_FLOW:
                self._flow()
            elif kind is event_types.LINK_REMOTE_OPEN:
                remote = self._link.remote_target if self._sends else self._link.remote_source
                self._attached = remote.address is not None  # otherwise a refusal follows
            elif kind in (event_types.LINK_REMOTE_CLOSE, event_types.LINK_REMOTE_DETACH):
                raise self._owner.refused("the link", _condition_of(event.link.remote_condition))
            elif kind is event_types.SESSION_REMOTE_CLOSE and not self._ending:
                raise self._owner.refused("the session", _condition_of(event.session.remote_condition))
            elif kind is event_types.CONNECTION_REMOTE_CLOSE and not self._ending:
                raise self._owner.refused("the connection", _condition_of(event.connection.remote_condition))
            elif kind is event_types.TRANSPORT_ERROR and not self._ending:
                raise self._owner.refused("the connection", self._condition())
            self._collector.pop()

    # ---------------------------------------------------------------- receiving

    def grant(self, number: int, drain: bool) -> None:
        """See `AmqpLink.grant`."""
        if drain:
            self._draining = True
            self._link.drain(number)
        else:
            self._link.flow(number)

    def conclude(self, deliveries: Sequence[tuple[int, bool]]) -> None:
        """See `AmqpLink.conclude`."""
        for tag, accepted in deliveries:
            if (delivery := self._deliveries.pop(tag, None)) is None:
                continue
            self._held -= self._sizes.pop(tag)
            if self._owner._browses:
                delivery.settle()
            elif accepted:
                delivery.update(self._proton.Delivery.ACCEPTED)
                delivery.settle()
            # A message that is left stays unsettled, and so is in its queue again when this connection ends. If it were
            # released, it would come again at once; and Artemis 2.55 drops one that is undeliverable here.
        self._receive()

    def _receive(self) -> None:
        link = self._link
        while (delivery := link.current) is not None:
            if delivery.aborted:
                self._pieces, self._arriving = [], 0
                delivery.settle()
                continue
            if self._held and self._held + self._arriving >= self._owner._most_bytes:
                return  # `conclude` continues
            piece = link.recv(_PIECE)
            if piece is None:
                self._complete(delivery)
            elif piece:
                self._add(piece)
            else:
                return
        self._flow()

    def _add(self, piece: bytes) -> None:
        self._arriving += len(piece)
        self._pieces.append(piece)
        if self._arriving > self._owner._most_bytes:
            self._pieces.clear()

    def _complete(self, delivery: Any) -> None:
        size, data = self._arriving, b"".join(self._pieces)
        self._pieces, self._arriving = [], 0
        tag = self._owner.next_tag()
        kept = data if size <= self._owner._most_bytes else None
        self._deliveries[tag] = delivery
        self._sizes[tag] = 0 if kept is None else size
        self._held += self._sizes[tag]
        self._link.advance()
        self._listener.arrived(tag, kept, size)

    def _flow(self) -> None:
        link = self._link
        if self._sends:
            self._send_waiting()
        elif self._draining and not link.draining() and not link.queued and not self._arriving:
            self._draining = False
            link.drained()
            self._listener.drained()

    # ---------------------------------------------------------------- sending

    def send(self, tag: int, data: bytes) -> None:
        """See `AmqpLink.send`."""
        self._waiting.append((tag, data))
        self._send_waiting()

    def _send_waiting(self) -> None:
        link = self._link
        most = link.remote_max_message_size
        while self._waiting and link.credit > 0:
            tag, data = self._waiting.popleft()
            if most and len(data) > most:
                self._listener.settled(tag, "too large", f"it has {len(data):,} bytes of at most {most:,}")
                continue
            self._deliveries[tag] = link.delivery(str(tag))
            link.stream(data)
            link.advance()

    def _outcome(self, delivery: Any) -> None:
        if not delivery.updated:
            return
        states = self._proton.Delivery
        state = delivery.remote_state
        tag = int(delivery.tag)
        outcome: Disposition
        why = ""
        if state == states.ACCEPTED:
            outcome = "accepted"
        elif state == states.REJECTED:
            outcome = "rejected"
            condition = delivery.remote.condition
            why = "" if condition is None else ": ".join(filter(None, (condition.name, condition.description)))
        elif state in (states.RELEASED, states.MODIFIED) or delivery.settled:
            outcome = "released"
        else:
            return
        delivery.settle()
        if self._deliveries.pop(tag, None) is not None:
            self._listener.settled(tag, outcome, why)


def _condition_of(condition: Any) -> _ErrorCondition:
    if condition is None:
        return _ErrorCondition("", "")
    return _ErrorCondition(condition.name or "", condition.description or "")


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f"it has not answered within {_CONNECT:g} s"
    return error.strerror or str(error) or type(error).__name__


def _context(address: BrokerAddress) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=address.ca)
    except (OSError, ssl.SSLError) as error:
        raise _unusable("ssl_ca", address.ca, error) from None
    if address.certificate is not None:
        try:
            context.load_cert_chain(address.certificate, password=_no_password)
        except (OSError, ssl.SSLError) as error:
            raise _unusable("ssl_certificate", address.certificate, error) from None
    return context


def _no_password() -> str:
    return ""  # otherwise it would be asked for on the terminal


def _unusable(option: str, path: str | None, error: Exception) -> ConfigError:
    why = "there is no PEM in it, or not what is needed"
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        why = error.strerror or type(error).__name__
    return ConfigError(f"`{option}` names {os.fspath(path or '')}, which cannot be used: {why}.", options=[option])
