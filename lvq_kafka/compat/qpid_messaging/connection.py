"""Connections of ``qpid.messaging``: a cluster, and the consumers that sessions share."""

from __future__ import annotations

import time
import uuid
from contextlib import ExitStack
from threading import RLock
from typing import Any, Self

from lvq_kafka.cluster import Cluster
from lvq_kafka.compat.qpid_messaging.connection_options import amqp_ports, client_config
from lvq_kafka.compat.qpid_messaging.exceptions import (
    ConnectError,
    ConnectionError,
    Timeout,
    TransactionError,
)
from lvq_kafka.compat.qpid_messaging.session import Session
from lvq_kafka.compat.qpid_messaging.sources import Consumers
from lvq_kafka.compat.qpid_messaging.standing_in import raised_as
from lvq_kafka.errors import BrokerUnavailable
from lvq_kafka.kafka.connecting import connect

__all__ = ["Connection"]

_PAUSE = 0.2  # seconds until the cluster is asked again
_PATIENCE = 10.0  # seconds for the cluster to answer, for a program that does not say how long


class Connection:
    """A connection to a cluster: the one on a host, or that of the environment.

    Args:
        url: ``[amqp://][user[/password]@]host[:port]``; the port is 9092 if there is none. ``LVQ_BOOTSTRAP_SERVERS``
            overrides host and port, and `ClientConfig.from_env` has the variables that override the options.
        cluster: an open cluster instead, such as `lvq_kafka.testing.MemoryCluster`. You remain responsible for closing
            it.
        options: those of ``qpid.messaging``. The ones about reconnecting and heartbeats have no effect, since Kafka's
            client reconnects by itself; but with ``reconnect``, `open` waits for a cluster that does not answer.

    Raises:
        ConnectionError: the URL or an option is malformed or unknown, or asks for what Kafka does not have.
        VersionError: the option ``protocol`` asks for a protocol that ``qpid.messaging`` does not have.
    """

    def __init__(self, url: str | None = None, *, cluster: Cluster | None = None, **options: Any) -> None:
        self.id = str(uuid.uuid4())
        self.options = options
        self.sessions: dict[str, Session] = {}
        self._given = cluster
        self._config = client_config(url or "", options) if cluster is None else None
        self._lock = RLock()
        self._unnamed = 0
        self._opened = ExitStack()
        self._consumers: Consumers | None = None

    @classmethod
    def establish(cls, url: str | None = None, timeout: float | None = None, **options: Any) -> Self:
        """Return a new connection that is open. Takes what the constructor and `open` take."""
        connection = cls(url, **options)
        connection.open(timeout)
        return connection

    def open(self, timeout: float | None = None) -> None:
        """Connect: the cluster has answered once this returns.

        Args:
            timeout: seconds to wait for the cluster; 10 by default, or without end with the option ``reconnect``.

        Raises:
            ConnectionError: it is open already.
            ConnectError, AuthenticationFailure: the cluster does not answer, or does not accept this user.
            Timeout: the cluster did not answer within ``timeout`` seconds.
        """
        with self._lock:
            if self._consumers is not None:
                raise ConnectionError(text="The connection is open already.")
            with raised_as(ConnectError), ExitStack() as opened:
                cluster = connect(config=self._config, cluster=self._given)
                if self._given is None:
                    opened.callback(cluster.close)
                self._await_answer(cluster, timeout)
                self._opened = opened.pop_all()
            self._consumers = Consumers(cluster)

    def _await_answer(self, cluster: Cluster, timeout: float | None) -> None:
        patience = self.options.get("reconnect_timeout") if timeout is None else timeout
        if patience is None and not self.options.get("reconnect"):
            patience = _PATIENCE
        deadline = None if patience is None else time.monotonic() + patience
        while True:
            left = _PATIENCE if deadline is None else max(0.1, deadline - time.monotonic())
            try:
                cluster.broker_count(timeout=min(left, _PATIENCE))
            except BrokerUnavailable as error:
                if deadline is None or time.monotonic() < deadline:
                    time.sleep(_PAUSE)
                    continue
                hint = self._amqp_hint()
                if timeout is not None:
                    raise Timeout(str(error), hint=hint) from error
                raise ConnectError(text=str(error), hint=hint) from error
            return

    def _amqp_hint(self) -> str:
        ports = "" if self._config is None else amqp_ports(self._config)
        if not ports:
            return ""
        return f"{ports} names the port of an AMQP broker. Name that of Kafka, or set LVQ_BOOTSTRAP_SERVERS."

    def opened(self) -> bool:
        """Return whether the connection is open."""
        return self._consumers is not None

    attached = opened

    def session(self, name: str | None = None, transactional: bool = False) -> Session:
        """Return a new session, or the one of this name.

        Raises:
            TransactionError: it should be transactional.
        """
        if transactional:
            raise TransactionError(
                text="A session cannot be transactional here: its transaction may span any queues, and last as long as "
                "the session. Kafka ends a transaction that stays open, and meanwhile hides what others write.",
                hint="Acknowledge messages when they are done; or, for one queue, use lvq_kafka's own "
                "consumer.transaction(producer).",
            )
        with self._lock:
            if name is None:
                name = str(self._unnamed)
                self._unnamed += 1
            named = f"{self.id}:{name}"
            if named not in self.sessions:
                self.sessions[named] = Session(self, named)
            return self.sessions[named]

    def close(self, timeout: float | None = None) -> None:
        """Close the connection and its sessions.

        All that was sent is stored then, and all that was acknowledged is durable. Raises what `Session.close` raises,
        and is closed all the same.
        """
        with self._lock, ExitStack() as last:
            self._consumers = None
            last.callback(self._opened.close)
            for session in list(self.sessions.values()):
                last.callback(session.close, timeout)

    def _forget(self, session: Session) -> None:
        with self._lock:
            self.sessions.pop(session.name, None)
