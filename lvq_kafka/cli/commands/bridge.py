"""Copies between a queue and the queue of another broker."""

from __future__ import annotations

import time

import click

from lvq_kafka.bridging.broker_address import BrokerAddress, is_address
from lvq_kafka.bridging.from_broker import BridgeStats, FromBroker
from lvq_kafka.bridging.to_broker import ToBroker
from lvq_kafka.cli.common_options import command
from lvq_kafka.cli.exit_codes import BAD_DATA, Complaint
from lvq_kafka.cli.invocation import Invocation, QueueChoice
from lvq_kafka.cli.output import count

__all__ = ["bridge"]


@command(
    "bridge",
    examples=[
        "lvq bridge amqp://broker.example:5672/prices prices",
        "lvq bridge amqps://reader@broker.example/prices prices --once --consume",
        "lvq bridge prices amqp://broker.example/prices --key-property _AMQ_LVQ_NAME",
    ],
)
@click.argument("source")
@click.argument("destination")
@click.option("--browse", "mode", flag_value="browse", help="Leave the messages in the other broker.  [default]")
@click.option(
    "--consume", "mode", flag_value="consume", help="Remove each message from the other broker once Kafka has it."
)
@click.option("--once", is_flag=True, help="Stop when the source has no more messages.  [default: never]")
@click.option(
    "--dry-run", is_flag=True, help="Store nothing: browse the other broker once, and count what could be copied."
)
@click.option(
    "--key-property",
    metavar="NAME",
    help="The application property that holds the key in the other broker.  [default: that of the queue's key header; "
    "or, in what comes from there, _AMQ_LVQ_NAME or qpid.LVQ_key]",
)
@click.option("--text", is_flag=True, help="Send values as text to the other broker, not as bytes.")
@click.option(
    "--duplicate-ids",
    is_flag=True,
    help="Send each message with an id in _AMQ_DUPL_ID, by which Artemis drops one that comes twice.",
)
@click.option("--virtual-host", metavar="NAME", help="The virtual host of the other broker.  [default: its host]")
@click.option(
    "--ssl-ca",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="With amqps://: the authorities to trust, in PEM.  [default: those of this machine]",
)
@click.option(
    "--ssl-certificate",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="With amqps://: a certificate for this client and its key, in PEM.",
)
def bridge(
    invocation: Invocation,
    source: str,
    destination: str,
    *,
    mode: str | None,
    once: bool,
    dry_run: bool,
    key_property: str | None,
    text: bool,
    duplicate_ids: bool,
    virtual_host: str | None,
    ssl_ca: str | None,
    ssl_certificate: str | None,
) -> None:
    """Copy a queue from another broker, or to it, over AMQP 1.0.

    One of SOURCE and DESTINATION is a queue. The other one is the address of a queue in another broker:
    amqp://[USER@]HOST[:PORT]/NAME, or amqps:// for TLS. The password for USER comes from LVQ_AMQP_PASSWORD, or from
    the file that LVQ_AMQP_PASSWORD_FILE names. Runs until Ctrl-C, through outages of both brokers.

    Each message is copied at least once, in order. From another broker, messages are copied or, with --consume, moved;
    to another broker, they are moved: consumed here once the broker has accepted them. A message that the destination
    cannot take stays in its source, and a warning says so. Needs the extra 'bridge'.

    Writes what it has done when it ends. With --once or --dry-run, exits with 5 if a message stays that cannot be
    copied.
    """
    if is_address(source) == is_address(destination):
        raise click.UsageError("Give a queue, and the address of another one: amqp://HOST/NAME.")
    inward = is_address(source)
    _check_options(inward, mode, dry_run=dry_run, text=text, duplicate_ids=duplicate_ids)
    address = BrokerAddress.of(
        source if inward else destination, virtual_host=virtual_host, ca=ssl_ca, certificate=ssl_certificate
    )
    queue = invocation.open(QueueChoice(destination if inward else source), create=not dry_run)
    running: FromBroker | ToBroker
    if inward:
        running = FromBroker(
            address,
            queue,
            mode="consume" if mode == "consume" else "browse",
            once=once or dry_run,
            dry_run=dry_run,
            key_property=key_property,
        )
    else:
        running = ToBroker(queue, address, once=once, key_property=key_property, text=text, duplicate_ids=duplicate_ids)
    _run(invocation, running, address, queue.name, once=once or dry_run)


def _check_options(inward: bool, mode: str | None, *, dry_run: bool, text: bool, duplicate_ids: bool) -> None:
    if dry_run and (mode == "consume" or not inward):
        raise click.UsageError("--dry-run is for messages from another broker, and consumes none.")
    if inward and (text or duplicate_ids):
        raise click.UsageError(f"{'--text' if text else '--duplicate-ids'} is for messages to another broker.")
    if not inward and mode == "browse":
        raise click.UsageError(
            "--browse is for messages from another broker. To keep what is here, declare a second queue on the same "
            "topic, and bridge that."
        )


def _run(
    invocation: Invocation, running: FromBroker | ToBroker, address: BrokerAddress, queue: str, *, once: bool
) -> None:
    stats = running.stats
    begin = time.monotonic()
    try:
        with invocation.out.waiting(lambda: running.trouble or f"{address} and {queue}: {_counts(stats)}"):
            running.run()
    finally:
        if not invocation.out.person:
            invocation.out.row(
                {
                    "copied": stats.copied,
                    "unchanged": stats.unchanged,
                    "again": stats.again,
                    "left": stats.left,
                    "not_carried": stats.not_carried,
                }
            )
        invocation.out.note(f"{_counts(stats)}, in {time.monotonic() - begin:.1f} s")
        for name, number in stats.not_carried.items():
            invocation.out.note(f"without their {name}: {count(number, 'message')}")
    if once and stats.left:
        raise Complaint(
            f"{count(stats.left, 'message')} stayed in the source, which the destination cannot take.", BAD_DATA
        )


def _counts(stats: BridgeStats) -> str:
    parts = [f"{count(stats.copied, 'message')} copied"]
    said = {"unchanged": stats.unchanged, "sent again": stats.again, "left": stats.left}
    parts += [f"{number:,} {what}" for what, number in said.items() if number]
    return ", ".join([*parts, f"{stats.in_flight:,} on their way"] if stats.in_flight else parts)
