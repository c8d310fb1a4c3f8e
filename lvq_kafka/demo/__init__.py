"""The tour: every part of the library at work on a real Kafka, with real market data.

``python -m lvq_kafka.demo`` (or ``make demo``) uses the broker that `lvq_kafka.testing.brokers.provide_broker` finds,
replays the daily closes of five US stocks, and checks what it shows. It exits with status 1 if any check fails.
"""

from lvq_kafka.runtime.extras import needing

with needing("demo", "The tour"):
    import rich  # noqa: F401  # reports a missing package before the modules import it
