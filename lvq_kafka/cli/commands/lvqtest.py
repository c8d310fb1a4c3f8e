"""Qpid's test program of last value queues, on a queue of this library.

It has that program's modes and options, and writes its lines, on a terminal and into a pipe.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from lvq_kafka.cli.commands.queues import print_unchecked
from lvq_kafka.cli.commands.read import print_blocked
from lvq_kafka.cli.common_options import WholeNumber, command
from lvq_kafka.cli.exit_codes import print_problem
from lvq_kafka.cli.invocation import Invocation, QueueChoice
from lvq_kafka.core.queue.option_names import QPID_KEY_HEADER
from lvq_kafka.core.text.quoting import listed, printable
from lvq_kafka.errors import ConfigError, QueueNotDeclared
from lvq_kafka.kafka import ClientConfig
from lvq_kafka.kafka.client import PropertyValue, port_of
from lvq_kafka.kafka.credentials import mechanism_of
from lvq_kafka.queue import LastValueQueue
from lvq_kafka.reading.entries import EndOfDump, Entry

if TYPE_CHECKING:
    from lvq_kafka.cli.output import Output

__all__ = ["lvqtest"]

_QUEUE = "LVQtester"
_KEYS = ("key1", "key2", "key3", "key1", "last")
_UNTAGGED = "last"  # the key whose value is its name, and marks the end
_LOOK = 0.1  # seconds until a consumer that was not assigned its partition yet is asked again


class _Port(WholeNumber):
    """A port.

    Its error does not show what was given instead, which after ``-p`` may be a password.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the port."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail("A port is a whole number from 1 to 65535.", param, ctx)


def _create(invocation: Invocation, *, keeps_browsed: bool) -> None:
    queue = LastValueQueue.declare(_QUEUE, key_header=QPID_KEY_HEADER, order="in-place", cluster=invocation.connect())
    print_unchecked(queue)
    if keeps_browsed:
        print_problem(
            "in Qpid's LVQ, a value that was browsed stays until it is consumed, and a newer one queues after it. Here "
            "browsing changes nothing (G6): the newer one replaces it, as in LVQ_NO_BROWSE, so consume receives one "
            "value of each key.",
            warning=True,
        )


def _write(invocation: Invocation) -> None:
    queue, out = _opened(invocation), invocation.out
    tag = f"0x7fff{secrets.token_hex(4)}"  # that program writes the address of an object, a new one in each run
    with queue.producer() as producer:
        receipts = []
        for key in _KEYS:
            value = key if key == _UNTAGGED else f"{key}.{tag}"
            receipts.append(producer.put(key, value.encode()))
            _print(out, f"Sending Data: {key}={value}")
        out.flush()
        with out.waiting(lambda: f"sending to {_QUEUE}"):
            for receipt in receipts:
                receipt.result()


def _browse(invocation: Invocation) -> None:
    received = 0
    with invocation.browser(_opened(invocation), follow=False) as browser:
        for event in browser:
            if isinstance(event, Entry):
                _receive(invocation.out, event.value)
                received += 1
            elif isinstance(event, EndOfDump):
                print_blocked(event)
    _note_if_none(invocation.out, received)


def _consume(invocation: Invocation) -> None:
    """Consume all that the queue holds, and end.

    While another consumer has the queue's partition, it waits.
    """
    received = 0
    with _opened(invocation).consumer() as consumer:
        while True:
            stats = consumer.stats
            empty = bool(stats.partitions) and not stats.catching_up and not stats.available
            delivery = consumer.acquire(0 if empty else _LOOK)
            if delivery is not None:
                with delivery:
                    _receive(invocation.out, delivery.value)
                    invocation.out.flush()
                received += 1
            elif empty:
                break
    _note_if_none(invocation.out, received)


_MODES: Mapping[str, Callable[[Invocation], None]] = {
    "create_lvq": partial(_create, keeps_browsed=True),
    "create_lvq_no_browse": partial(_create, keeps_browsed=False),
    "write": _write,
    "browse": _browse,
    "consume": _consume,
}


def _name_broker(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Take ``--broker`` for another name of ``-b``: of the two, the last one counts."""
    if value is not None:
        ctx.ensure_object(Invocation).bootstrap_servers = value


@command(
    "lvqtest",
    examples=[
        "lvq lvqtest --mode create_lvq_no_browse",
        "lvq lvqtest --mode write",
        "lvq lvqtest --mode browse --broker kafka1 --port 9093",
        "LVQ_SASL_PASSWORD_FILE=secret lvq lvqtest --mode consume --username alice --mechanism SCRAM-SHA-256",
    ],
)
@click.option(
    "--mode",
    type=click.Choice(list(_MODES)),
    default="browse",
    show_default=True,
    help="create_lvq, create_lvq_no_browse: create the queue. write: write a bunch of data and keys. browse: browse "
    "the queue. consume: consume all that is in it.",
)
@click.option(
    "--broker",
    metavar="HOST",
    help="The broker to connect to; the same as -b.",
    expose_value=False,
    callback=_name_broker,
)
@click.option(
    "-p",
    "--port",
    type=_Port(1, 65535),
    help="The port of brokers that are named without one; of localhost, if none is named.  [default: 9092]",
)
@click.option("--username", metavar="USER", help="The user to log in as. [env: LVQ_SASL_USERNAME]")
@click.option(
    "--password",
    metavar="PASSWORD",
    help="The password to log in with. On the command line, other users of this machine can see it; in "
    "LVQ_SASL_PASSWORD, or in the file that LVQ_SASL_PASSWORD_FILE names, they cannot.",
)
@click.option("--mechanism", metavar="MECH", help="The SASL mechanism.  [env: LVQ_SASL_MECHANISM; default: PLAIN]")
@click.option("--tcp-nodelay", is_flag=True, help="Turn on TCP_NODELAY, so that small packets are sent at once.")
def lvqtest(
    invocation: Invocation,
    *,
    mode: str,
    port: int | None,
    username: str | None,
    password: str | None,
    mechanism: str | None,
    tcp_nodelay: bool,
) -> None:
    """Do what Qpid's program lvqtest does, and write its lines.

    It works on the queue LVQtester, whose key header is qpid.LVQ_key. browse and consume end when they have received
    all that is there. Characters of a value that a terminal would obey are escaped.
    """
    if invocation.out.json:
        raise click.UsageError("--json does not go with lvqtest; lvq browse and lvq consume write JSON lines.")
    properties: dict[str, PropertyValue | None] = {
        "sasl.username": username,
        "sasl.password": password,
        "sasl.mechanism": mechanism and mechanism.upper(),
        "socket.nagle.disable": True if tcp_nodelay else None,
    }
    given = {name: value for name, value in properties.items() if value is not None}
    if port is not None:
        invocation.default_servers = "localhost"
    invocation.amend = partial(_amended, port=port, given=given)
    _MODES[mode](invocation)


def _amended(config: ClientConfig, port: int | None, given: dict[str, PropertyValue]) -> ClientConfig:
    """Return a configuration with the port and the properties that the options give.

    Where these log in, the protocol is one that does: with another one, the client would ignore them.

    Raises:
        click.UsageError: the port is for no broker.
        ConfigError: the user's name or password is missing.
    """
    servers = config.bootstrap_servers if port is None else _with_port(config.bootstrap_servers, port)
    properties = {**config.properties, "bootstrap.servers": servers, **given}
    if "sasl.mechanism" in given:
        properties.pop("sasl.mechanisms", None)  # the same property
    if any(name.startswith("sasl.") for name in given):
        if not properties.keys() & {"sasl.mechanism", "sasl.mechanisms"}:
            properties["sasl.mechanism"] = "PLAIN"
        protocol = str(properties.get("security.protocol", "plaintext")).lower()
        if not protocol.startswith("sasl"):
            properties["security.protocol"] = f"sasl_{protocol}"
        _check_login(properties)
        if protocol == "plaintext" and mechanism_of(properties) == "PLAIN":
            print_problem(
                f"the password goes to {servers} unencrypted. To encrypt the connection: "
                "LVQ_SECURITY_PROTOCOL=SASL_SSL.",
                warning=True,
            )
    return ClientConfig(servers, properties)


def _with_port(servers: str, port: int) -> str:
    """Add a port to the brokers that name none."""
    named = servers.split(",")
    if all(port_of(server) not in (None, str(port)) for server in named):
        raise click.UsageError(f"--port is for brokers that are named without a port, unlike {listed(named)}.")
    return ",".join(server if port_of(server) is not None else f"{server}:{port}" for server in named)


def _check_login(properties: Mapping[str, PropertyValue]) -> None:
    if mechanism_of(properties).startswith(("PLAIN", "SCRAM-")):
        for name, what in (("sasl.username", "user name"), ("sasl.password", "password")):
            if not properties.get(name):
                variable = f"LVQ_{name.replace('.', '_').upper()}"
                raise ConfigError(
                    f"No {what} is given to log in with.",
                    options=[name],
                    hint=f"Set {variable}, or {variable}_FILE to the name of a file that holds it.",
                )


def _opened(invocation: Invocation) -> LastValueQueue[Any]:
    try:
        return invocation.open(QueueChoice(_QUEUE))
    except QueueNotDeclared:
        raise QueueNotDeclared(
            f"No queue {_QUEUE} is declared.",
            queue=_QUEUE,
            hint="Create it: lvq lvqtest --mode create_lvq_no_browse, or create_lvq.",
        ) from None


def _note_if_none(out: Output, received: int) -> None:
    if not received:
        out.note(f"{_QUEUE} is empty.")


def _receive(out: Output, value: bytes) -> None:
    _print(out, f"Receiving Data:{value.decode('utf-8', 'surrogateescape')}")


def _print(out: Output, line: str) -> None:
    out.raw(f"{printable(line)}\n".encode())
