"""An ASGI application on a port of its own, for tests that need sockets."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from tests.waiting import eventually

__all__ = ["web_server"]


@contextmanager
def web_server(served: Any) -> Iterator[int]:
    """Run a server in a thread, and yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(served, http="h11", ws="none", lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            eventually(lambda: server.started)
            server.should_exit = True
            thread.join(20)
