"""A view in a process of its own: for each position read from stdin, it prints its key's value there then."""

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
