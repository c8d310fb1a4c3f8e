"""The published example, run as users run it, and its picture, as they see it."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread
from matplotlib.transforms import Bbox

from lvq_kafka.demo.ticks import load_ticks, monthly_closes
from lvq_kafka.testing.brokers import ProvidedBroker

EXAMPLE = Path(__file__).parents[2] / "spark" / "examples" / "prices.py"

RUN_AND_LOOK = """
import json, runpy, sys

from matplotlib import pyplot as plt
from matplotlib.colors import to_hex

del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
[figure] = map(plt.figure, plt.get_fignums())
[axes] = figure.axes
figure.set_dpi(130)  # as it was saved
figure.draw_without_rendering()
curves = {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}
dates = [label for at, label in zip(axes.get_xticks(), axes.get_xticklabels()) if axes.viewLim.containsx(at)]
words = [axes.title, axes.yaxis.label, *axes.texts, *dates, *axes.get_yticklabels()]
print(json.dumps({
    "scale": axes.get_yscale(),
    "title": axes.get_title(),
    "ylabel": axes.get_ylabel(),
    "edges": figure.bbox.extents.tolist(),
    "words": {word.get_text(): word.get_window_extent().extents.tolist() for word in words if word.get_text()},
    "names": {word.get_text(): to_hex(word.get_color()) for word in axes.texts},
    "colors": {name: to_hex(line.get_color()) for name, line in curves.items()},
    "curves": {name: line.get_ydata().tolist() for name, line in curves.items()},
}))
"""


def growth() -> dict[str, list[float]]:
    """Return the last close of each month by stock, relative to its first one."""
    closes: dict[str, list[float]] = {}
    for month, close in sorted(monthly_closes(load_ticks()).items()):
        closes.setdefault(month.split()[0], []).append(float(close))
    return {ticker: [close / each[0] for close in each] for ticker, each in closes.items()}


@pytest.mark.timeout(600)
def test_the_example_draws_the_growth_of_each_stock_for_a_person_to_read(
    lvq_broker: ProvidedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LVQ_BOOTSTRAP_SERVERS", lvq_broker.bootstrap_servers)
    picture = tmp_path / "prices.png"
    command = [sys.executable, "-c", RUN_AND_LOOK, EXAMPLE, picture]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "messages, 586 rows" in done.stdout
    drawn = json.loads(done.stdout.splitlines()[-1])

    expected = growth()
    assert drawn["curves"].keys() == expected.keys() == {"AAPL", "FB", "GOOG", "IBM", "MSFT"}
    for ticker, values in expected.items():
        assert drawn["curves"][ticker] == pytest.approx(values)
    assert drawn["scale"] == "log"
    assert drawn["title"].startswith("Month-end closes")
    assert drawn["ylabel"].startswith("times the first month's close")

    assert drawn["names"] == drawn["colors"], "each curve has its name beside it, in its own color"
    assert len(set(drawn["colors"].values())) == 5
    words = {text: Bbox.from_extents(*extents) for text, extents in drawn["words"].items()}
    left, bottom, right, top = drawn["edges"]
    for text, box in words.items():
        assert left <= box.x0 < box.x1 <= right, text
        assert bottom <= box.y0 < box.y1 <= top, text
    for one, other in combinations(words, 2):
        assert not words[one].overlaps(words[other]), f"{one} lies over {other}"

    pixels = imread(picture)[..., :3]
    assert pixels.shape == (top, right, 3)
    for ticker, color in drawn["colors"].items():
        alike = np.abs(pixels - to_rgb(color)).max(axis=-1) < 0.02
        assert alike.sum() > 100, f"{ticker} is not to be seen"
