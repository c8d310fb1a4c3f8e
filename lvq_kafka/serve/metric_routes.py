"""Metrics of the views that are served, for Prometheus (R48)."""

from __future__ import annotations

from functools import partial

from lvq_kafka.core.measures.instruments import Collected
from lvq_kafka.core.measures.measured import QUEUE_NAME
from lvq_kafka.runtime.aio import in_thread
from lvq_kafka.serve.calls import HttpCall
from lvq_kafka.serve.http_answers import HttpAnswer
from lvq_kafka.serve.operations import AnswerForm, HttpOperation
from lvq_kafka.serve.queue_rights import QueueRights
from lvq_kafka.telemetry.metrics import Metrics
from lvq_kafka.telemetry.prometheus_families import exposition

__all__ = ["METRICS", "answer_metrics"]

METRICS = HttpOperation(
    "getMetrics",
    "Get the metrics of the views that the client may read, for Prometheus.",
    {
        200: AnswerForm(
            "The metrics.",
            {"text/plain": {"type": "string"}, "application/openmetrics-text": {"type": "string"}},
            ("cache-control",),
        )
    },
    refusals=(501,),
)


async def answer_metrics(call: HttpCall) -> HttpAnswer:
    """Answer with the metrics of the queues that this client may read."""
    call.parameters()
    show = partial(_shown, call.served.metrics, call.bearer.rights, call.request.header("accept"))
    body, media_type = await in_thread(show)
    return HttpAnswer(200, [("content-type", media_type), ("cache-control", "no-store")], body)


def _shown(metrics: Metrics, rights: QueueRights, accept: str | None) -> tuple[bytes, str]:
    return exposition(_readable(metrics.collect(), rights), accept)


def _readable(collected: Collected, rights: QueueRights) -> Collected:
    """Return the metrics that name no other queue than those that may be read."""
    return [
        (
            instrument,
            [
                sample
                for sample in samples
                if (queue := sample.attributes.get(QUEUE_NAME)) is None or rights.may_read(queue)
            ],
        )
        for instrument, samples in collected
    ]
