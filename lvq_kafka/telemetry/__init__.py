"""Metrics and traces, for programs that ask for them: `Metrics` and `Tracing`.

`lvq_kafka.core.measures` lists what is measured, and its names. This package reads it from the clients of a program
(`metrics`), for OpenTelemetry and for Prometheus; from all declared queues (`queue_survey`); and carries traces through
the headers of messages (`tracing`). Nothing here is imported by the rest of the library.
"""

from lvq_kafka.telemetry.metrics import Metrics
from lvq_kafka.telemetry.queue_survey import QueueSurvey
from lvq_kafka.telemetry.tracing import Tracing

__all__ = ["Metrics", "QueueSurvey", "Tracing"]
