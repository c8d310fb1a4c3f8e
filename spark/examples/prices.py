"""Prices of five stocks, from a last value queue into Spark, and as a picture.

A notebook in the form of a script: each ``# %%`` begins a cell, for editors that know such. It needs
``pip install 'lvq-kafka[demo]'`` and a Java 17 or newer, and runs on a Kafka of its own, or on the one that
``LVQ_BOOTSTRAP_SERVERS`` names:

    python spark/examples/prices.py prices.png
"""

# %% A Kafka, and a Spark session in this process
import sys
from contextlib import ExitStack
from pathlib import Path

import matplotlib as mpl
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

import lvq_spark
from lvq_kafka import JSON, LastValueQueue, TopicSpec
from lvq_kafka.demo.ticks import load_ticks
from lvq_kafka.testing.brokers import provide_broker

picture = Path(sys.argv[1] if len(sys.argv) > 1 else "prices.png")
opened = ExitStack()
servers = opened.enter_context(provide_broker()).bootstrap_servers
spark = lvq_spark.local_session("local[2]")
lvq_spark.register(spark)

# %% Publish: 12,000 daily closes. The queue is keyed by stock and month, so of each month the last close stays.
queue = LastValueQueue.declare(
    "closes", key_header="month", spec=TopicSpec(partitions=4), bootstrap_servers=servers, value=JSON
)
opened.callback(queue.drop, delete_topic=True)
ticks = load_ticks()
with queue.producer() as producer:
    for tick in ticks:
        producer.put(f"{tick.ticker} {tick.date[:7]}", {"date": tick.date, "close": float(tick.close)})

# %% Read: one row for each key, whatever else the log still holds
latest = spark.read.format("lvq").option("kafka.bootstrap.servers", servers).option("queue", "closes").load()
closes = lvq_spark.decode(latest, "json", schema="date date, close double").select(
    F.split_part(F.col("key").cast("string"), F.lit(" "), F.lit(1)).alias("ticker"), "value.date", "value.close"
)
closes.orderBy("date", "ticker").show(5)
print(f"{len(ticks)} messages, {closes.count()} rows")

# %% Compute: the growth of each stock since its first month
first = closes.groupBy("ticker").agg(F.min_by("close", "date").alias("first"))
growth = closes.join(first, "ticker").select("ticker", "date", (F.col("close") / F.col("first")).alias("growth"))
growth.groupBy("ticker").agg(F.max_by("growth", "date").alias("growth")).orderBy(F.desc("growth")).show()

# %% Draw
mpl.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
lines = growth.orderBy("date").toPandas()
axes.axhline(1, color="0.8", linewidth=0.8)
for ticker, line in lines.groupby("ticker"):
    [drawn] = axes.plot(line["date"], line["growth"], label=ticker, linewidth=1.2)
    end = line.iloc[-1]
    place = {"xytext": (6, 0), "textcoords": "offset points", "verticalalignment": "center"}
    axes.annotate(ticker, (end["date"], end["growth"]), color=drawn.get_color(), **place)
axes.set_yscale("log", subs=())
axes.set_yticks([0.1, 0.2, 0.5, 1, 2, 5], labels=["0.1", "0.2", "0.5", "1", "2", "5"])
axes.set_title("Month-end closes against each stock's first month: one row per key, from a compacted topic")
axes.set_ylabel("times the first month's close (not adjusted for splits)")
axes.spines[["top", "right"]].set_visible(False)
figure.savefig(picture, dpi=130)
print(picture)

# %% Clean up
spark.stop()
opened.close()
