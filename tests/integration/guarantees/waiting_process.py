"""A process with a view: for each key and position on stdin, it waits for the position and prints the value."""

from __future__ import annotations

import sys

from lvq_kafka import TEXT, LastValueQueue


def main(servers: str, name: str) -> None:
    with LastValueQueue.open(name, value=TEXT, bootstrap_servers=servers) as queue, queue.view() as view:
        print("ready", flush=True)
        for line in sys.stdin:
            key, position = line.split()
            view.wait_for(position)
            print(view[key], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
