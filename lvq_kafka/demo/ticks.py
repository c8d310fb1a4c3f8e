"""The data: daily prices of five US stocks, 2000 to 2013 (package bokeh-sampledata)."""

from __future__ import annotations

import csv
import gzip
from importlib.resources import files
from typing import NamedTuple

from lvq_kafka.errors import ConfigError

__all__ = ["Tick", "load_ticks", "monthly_closes"]


class Tick(NamedTuple):
    """One day's closing price of one stock."""

    date: str
    ticker: str
    close: str


def load_ticks() -> list[Tick]:
    """Return all closes, day by day.

    Raises:
        ConfigError: the package with the data is not installed.
    """
    try:
        packed = files("bokeh_sampledata").joinpath("_data", "stocks.csv.gz").read_bytes()
    except (ModuleNotFoundError, FileNotFoundError) as missing:
        raise ConfigError(f"The stock prices are missing: {missing}.", hint="Install lvq-kafka[demo].") from None
    rows = csv.DictReader(gzip.decompress(packed).decode().splitlines())
    return sorted(Tick(row["Date"], row["Ticker"], row["Close"]) for row in rows)


def monthly_closes(ticks: list[Tick]) -> dict[str, str]:
    """Return the last close of each stock in each month, by ``TICKER YYYY-MM``."""
    return {f"{tick.ticker} {tick.date[:7]}": tick.close for tick in ticks}
