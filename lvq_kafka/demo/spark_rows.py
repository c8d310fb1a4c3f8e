"""The Spark process of the tour: a snapshot of the queue, as rows.

It reads one question from stdin, as a line of JSON, and writes the rows to stdout.
"""

from __future__ import annotations

import json
import sys
import tempfile

from lvq_kafka import TEXT, LastValueQueue, LVQError

__all__ = ["main"]


def main() -> int:
    """Start Spark, wait for the question, and answer it; return the exit status."""
    import lvq_spark

    folder = tempfile.gettempdir()  # the tour removes it, however this process ends
    try:
        spark = lvq_spark.local_session(
            "local[2]", {"spark.local.dir": folder, "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder}"}
        )
        spark.range(1).count()  # the first query starts most of Spark
        if not (question := sys.stdin.readline()):  # the tour has ended
            return 0
        asked = json.loads(question)
        with LastValueQueue.open(asked["queue"], bootstrap_servers=asked["bootstrap_servers"], value=TEXT) as queue:
            end = {int(partition): offset for partition, offset in asked["end"].items()}
            snapshot = lvq_spark.snapshot(spark, queue, end=end)
            rows = [
                {
                    "key": bytes(row.key).decode(),
                    "value": bytes(row.value).decode(),
                    "partition": row.partition,
                    "offset": row.offset,
                    "timestamp": str(row.timestamp),
                }
                for row in snapshot.orderBy("offset").collect()
            ]
        spark.stop()
    except LVQError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201
        return 1
    print(json.dumps(rows))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
