"""Centrifugo, which brings what is written to a Kafka topic to browsers, by server-sent events.

It runs as released, built from its Go module. We configure a port, clients without tokens, and the topic: each message
goes to the channel that a header of it names, and from there to each client.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

from lvq_kafka.embedded.cache import cache_dir, locked

__all__ = ["CHANNEL", "CHANNEL_HEADER", "READY", "TARGET", "VERSION", "configure", "install"]

VERSION = "v6.9.1"
CHANNEL = "prices"
CHANNEL_HEADER = "centrifugo-channels"

TARGET = "/connection/uni_sse?cf_connect=" + quote(json.dumps({"subs": {CHANNEL: {}}}))
"""The address of a stream."""

READY = '"connect":'
"""The beginning of a stream, after which its client gets all that comes."""

_MODULE = f"github.com/centrifugal/centrifugo/v6@{VERSION}"


def install() -> Path | None:
    """Return the program, which is built once, with Go; None if there is no Go here."""
    go = shutil.which("go")
    if go is None:
        return None
    home = cache_dir() / f"centrifugo-{VERSION}"
    with locked(cache_dir() / "centrifugo.lock"):
        if not home.exists():
            with tempfile.TemporaryDirectory(prefix=".centrifugo-", dir=cache_dir()) as work:
                built = Path(work, "built")
                subprocess.run([go, "install", _MODULE], env={**os.environ, "GOBIN": str(built)}, check=True)
                built.rename(home)
    return home / "centrifugo"


def configure(folder: Path, servers: str, topic: str, group: str, port: int) -> Path:
    """Write its configuration into a folder, and return the file."""
    kafka = {
        "brokers": servers.split(","),
        "topics": [topic],
        "consumer_group": group,
        "publication_data_mode": {"enabled": True, "channels_header": CHANNEL_HEADER},
    }
    found = folder / "centrifugo.json"
    found.write_text(
        json.dumps(
            {
                "http_server": {"address": "127.0.0.1", "port": str(port)},
                "client": {"insecure": True, "allowed_origins": ["*"]},
                "uni_sse": {"enabled": True},
                "consumers": [{"enabled": True, "name": "kafka", "type": "kafka", "kafka": kafka}],
                "log": {"level": "error"},
            }
        )
    )
    return found
