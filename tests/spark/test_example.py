"""The example that is shown to people, run as they run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lvq_kafka.testing.brokers import ProvidedBroker

EXAMPLE = Path(__file__).parents[2] / "spark" / "examples" / "prices.py"


@pytest.mark.timeout(600)
def test_the_example_draws_a_picture_of_real_prices(
    lvq_broker: ProvidedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LVQ_BOOTSTRAP_SERVERS", lvq_broker.bootstrap_servers)
    picture = tmp_path / "prices.png"
    done = subprocess.run([sys.executable, EXAMPLE, picture], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "messages, 586 rows" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
