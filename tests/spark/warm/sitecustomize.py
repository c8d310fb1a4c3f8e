"""Imports for PySpark's Pythons: from files that are compiled, and in its daemons once instead of in every fork.

In this suite Spark starts a new Python every few seconds, and importing pyarrow, numpy and the library takes longer
than its task. Python imports a module of this name at its start; the workers find it by ``PYTHONPATH``, which Spark
passes on to them. ``tests/spark/starting.py`` does the same for the JVM.
"""

import gc
import importlib
import sys
from contextlib import suppress

MODULES = (
    "pyarrow",
    "numpy.ma",
    "pyspark.sql.conversion",
    "pyspark.sql.datasource",
    "pyspark.sql.pandas.types",
    "lvq_spark.scan.tasks",
    "lvq_spark.source.batch",
    "lvq_spark.source.streaming",
)

if sys.orig_argv[-1].startswith("pyspark."):
    # Their contents are installed, or are not Python. Every process would compile what is in a zip, for half a second,
    # and each fork would read its directory.
    sys.path[:] = [path for path in sys.path if not path.endswith((".zip", ".jar"))]

if "pyspark.daemon" in sys.orig_argv:
    for name in (sys.orig_argv[-1], *MODULES):
        with suppress(ImportError):  # the library is not installed everywhere
            importlib.import_module(name)
    gc.freeze()  # the forks collect garbage after every task
