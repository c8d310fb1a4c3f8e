"""Send messages to an address, and print each."""

from __future__ import annotations

import argparse
import time

from qpid.messaging import Connection, Message, SendError, uuid4


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("content", nargs="*")
    parser.add_argument("-b", "--broker", default="localhost")
    parser.add_argument("-c", "--count", type=int, default=1, help="0 for no limit")
    parser.add_argument("-t", "--timeout", type=float, help="seconds to send for")
    parser.add_argument("-i", "--id", default=str(uuid4()), help="marks the messages")
    parser.add_argument("-s", "--subject")
    parser.add_argument("-r", "--reply-to")
    parser.add_argument("-d", "--durable", action="store_true")
    parser.add_argument("-p", "--property", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("-m", "--map", action="append", default=[], metavar="NAME=VALUE", help="part of the content")
    parser.add_argument("--ttl", type=float)
    parser.add_argument("--reconnect", action="store_true")
    given = parser.parse_args()

    text = " ".join(given.content) or None
    content = text
    if given.map:
        content = dict(pair.split("=", 1) for pair in given.map)
        if text is not None:
            content["text"] = text

    connection = Connection(given.broker, reconnect=given.reconnect, reconnect_interval=3)
    end = None if given.timeout is None else time.time() + given.timeout
    sent = 0
    try:
        connection.open()
        sender = connection.session().sender(given.address)
        while sent < given.count or given.count == 0:
            if end is not None and time.time() >= end:
                break
            message = Message(content, subject=given.subject, reply_to=given.reply_to, ttl=given.ttl)
            if given.durable:
                message.durable = True
            message.properties["spout-id"] = f"{given.id}:{sent}"
            message.properties.update(pair.split("=", 1) for pair in given.property)
            sender.send(message)
            sent += 1
            print(message)
    except SendError as error:
        print(error)
    except KeyboardInterrupt:
        pass
    connection.close()


if __name__ == "__main__":
    main()
