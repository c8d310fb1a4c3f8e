"""Metrics of the views that are served, for Prometheus (R48)."""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import partial

from lvq_kafka.core.measures.conventions import TOPIC
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
    rights = call.bearer.rights
    topics = {queue.view.topic for name, queue in call.served.queues.items() if rights.may_read(name)}
    show = partial(_shown, call.served.metrics, rights, topics, call.request.header("accept"))
    body, media_type = await in_thread(show)
    return HttpAnswer(200, [("content-type", media_type), ("cache-control", "no-store")], body)


def _shown(metrics: Metrics, rights: QueueRights, topics: Set[str], accept: str | None) -> tuple[bytes, str]:
    return exposition(_readable(metrics.collect(), rights, topics), accept)


def _readable(collected: Collected, rights: QueueRights, topics: Set[str]) -> Collected:
    """Return the metrics that name no queue or topic that may not be read."""

    def may_read(attributes: Mapping[str, str]) -> bool:
        queue, topic = attributes.get(QUEUE_NAME), attributes.get(TOPIC)
        if queue is not None:
            return rights.may_read(queue)
        return topic is None or topic in topics or rights.reads_all

    return [
        (instrument, [sample for sample in samples if may_read(sample.attributes)]) for instrument, samples in collected
    ]
