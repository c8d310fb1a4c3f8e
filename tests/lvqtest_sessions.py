"""The sessions that Qpid's documentation shows of its program lvqtest, and what this one prints in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

__all__ = ["LVQ", "LVQ_NO_BROWSE", "printed", "steps", "with_numbered_tags"]

LVQ = """\
$ lvqtest --mode create_lvq
$ lvqtest --mode write
Sending Data: key1=key1.0x7fffdf3f3180
Sending Data: key2=key2.0x7fffdf3f3180
Sending Data: key3=key3.0x7fffdf3f3180
Sending Data: key1=key1.0x7fffdf3f3180
Sending Data: last=last
$ lvqtest --mode browse
Receiving Data:key1.0x7fffdf3f3180
Receiving Data:key2.0x7fffdf3f3180
Receiving Data:key3.0x7fffdf3f3180
Receiving Data:last
$ lvqtest --mode write
Sending Data: key1=key1.0x7fffe4c7fa10
Sending Data: key2=key2.0x7fffe4c7fa10
Sending Data: key3=key3.0x7fffe4c7fa10
Sending Data: key1=key1.0x7fffe4c7fa10
Sending Data: last=last
$ lvqtest --mode browse
Receiving Data:key1.0x7fffe4c7fa10
Receiving Data:key2.0x7fffe4c7fa10
Receiving Data:key3.0x7fffe4c7fa10
Receiving Data:last
$ lvqtest --mode consume
Receiving Data:key1.0x7fffdf3f3180
Receiving Data:key2.0x7fffdf3f3180
Receiving Data:key3.0x7fffdf3f3180
Receiving Data:last
Receiving Data:key1.0x7fffe4c7fa10
Receiving Data:key2.0x7fffe4c7fa10
Receiving Data:key3.0x7fffe4c7fa10
Receiving Data:last
"""
"""The last step prints the first four of its lines in Qpid alone: there, values that were browsed are kept (G6)."""

LVQ_NO_BROWSE = """\
$ lvqtest --mode create_lvq_no_browse
$ lvqtest --mode write
Sending Data: key1=key1.0x7fffce5fb390
Sending Data: key2=key2.0x7fffce5fb390
Sending Data: key3=key3.0x7fffce5fb390
Sending Data: key1=key1.0x7fffce5fb390
Sending Data: last=last
$ lvqtest --mode write
Sending Data: key1=key1.0x7fff346ae440
Sending Data: key2=key2.0x7fff346ae440
Sending Data: key3=key3.0x7fff346ae440
Sending Data: key1=key1.0x7fff346ae440
Sending Data: last=last
$ lvqtest --mode browse
Receiving Data:key1.0x7fff346ae440
Receiving Data:key2.0x7fff346ae440
Receiving Data:key3.0x7fff346ae440
Receiving Data:last
$ lvqtest --mode browse
Receiving Data:key1.0x7fff346ae440
Receiving Data:key2.0x7fff346ae440
Receiving Data:key3.0x7fff346ae440
Receiving Data:last
$ lvqtest --mode write
Sending Data: key1=key1.0x7fff606583e0
Sending Data: key2=key2.0x7fff606583e0
Sending Data: key3=key3.0x7fff606583e0
Sending Data: key1=key1.0x7fff606583e0
Sending Data: last=last
$ lvqtest --mode consume
Receiving Data:key1.0x7fff606583e0
Receiving Data:key2.0x7fff606583e0
Receiving Data:key3.0x7fff606583e0
Receiving Data:last
"""


def steps(session: str) -> Iterator[list[str]]:
    """Yield the arguments of each command of a session, as ``lvq`` takes them."""
    for line in session.splitlines():
        if line.startswith("$ "):
            yield line.split()[1:]


def printed(session: str, run: Callable[[list[str]], str]) -> str:
    """Run the commands of a session; return the session with what they print."""
    return "".join(f"$ {' '.join(command)}\n{run(command)}" for command in steps(session))


def with_numbered_tags(text: str) -> str:
    """Return a text with the tag of each run replaced by its number in order of appearance."""
    numbers: dict[str, int] = {}
    return re.sub(r"0x[0-9a-f]+", lambda tag: f"tag {numbers.setdefault(tag[0], len(numbers) + 1)}", text)
