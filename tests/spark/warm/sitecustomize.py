"""Has PySpark's daemons import once what every Python that they fork would import by itself.

In this suite Spark starts a new Python every few seconds, and to import pyarrow, numpy and the library takes that
longer than its task. Python imports a module of this name at its start; the daemons find it by ``PYTHONPATH``, which
Spark hands down to them. See ``tests/spark/jvm.py`` for the same on the other side.
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

if "pyspark.daemon" in sys.orig_argv:
    # Each fork would read the directories of these archives; what they hold is installed, or is no Python.
    sys.path[:] = [path for path in sys.path if not path.endswith((".zip", ".jar"))]
    for name in (sys.orig_argv[-1], *MODULES):
        with suppress(ImportError):  # not everywhere is the library installed
            importlib.import_module(name)
    gc.freeze()  # the forks collect garbage after every task
