"""Fetch messages from an address until there are none, and print each."""

from __future__ import annotations

import argparse

from qpid.messaging import Connection, Empty, ReceiverError


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("-b", "--broker", default="localhost")
    parser.add_argument("-c", "--count", type=int, help="messages to fetch at most")
    parser.add_argument("-t", "--timeout", type=float, default=0, help="seconds to wait for a message")
    parser.add_argument("-f", "--forever", action="store_true", help="wait for messages without end")
    parser.add_argument("-p", "--print", default="{0}", help="how to print a message, as {0.content} or {0.properties}")
    parser.add_argument("--reconnect", action="store_true")
    given = parser.parse_args()

    connection = Connection(given.broker, reconnect=given.reconnect, reconnect_interval=3)
    fetched = 0
    try:
        connection.open()
        session = connection.session()
        receiver = session.receiver(given.address)
        while given.count is None or fetched < given.count:
            try:
                message = receiver.fetch(timeout=None if given.forever else given.timeout)
            except Empty:
                break
            print(given.print.format(message))
            fetched += 1
            session.acknowledge()
    except ReceiverError as error:
        print(error)
    except KeyboardInterrupt:
        pass
    connection.close()


if __name__ == "__main__":
    main()
