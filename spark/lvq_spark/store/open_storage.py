"""A store's directory, as a Spark session resolves its path."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession

from lvq_kafka.core.text.validation import text
from lvq_kafka.errors import ConfigError
from lvq_spark.session.remote import is_connect
from lvq_spark.store.hadoop import HadoopStorage
from lvq_spark.store.storage import LocalStorage, Storage

__all__ = ["open_storage"]


def open_storage(spark: SparkSession, path: str | os.PathLike[str]) -> Storage:
    """Return the directory that Spark means by a path.

    A path without a scheme belongs to Hadoop's default file system.

    Raises:
        ConfigError: the session cannot resolve the path, as with Spark Connect; Hadoop does not know the scheme; or
            ``path`` is not a path.
    """
    path = _text(path)
    globs = sorted(set("{}[]*?\\\0") & set(path))
    if globs:
        raise ConfigError(
            f"The path {path!r} contains a {globs[0].replace(chr(0), 'NUL')}.",
            options=["path"],
            hint="Choose a path that Spark does not take for a pattern.",
        )
    scheme = urlsplit(path).scheme
    jvm: Any = getattr(spark, "_jvm", None) if not is_connect(spark) else None
    if jvm is None:
        if scheme == "file":
            return LocalStorage(unquote(urlsplit(path).path))
        raise ConfigError(
            f"A Spark Connect session does not reveal where {path} is.",
            options=["path"],
            hint="Use a classic session, in the driver; or a path that starts with file:.",
        )
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    configuration = spark._jsc.hadoopConfiguration()
    try:
        target = jvm.org.apache.hadoop.fs.Path(path)
        files = target.getFileSystem(configuration)
    except Py4JJavaError as error:
        raise ConfigError(
            f"Hadoop has no file system for {path}: {error.java_exception.getMessage()}", options=["path"]
        ) from None
    qualified = files.makeQualified(target)
    if files.getUri().getScheme() == "file":
        return LocalStorage(str(qualified.toUri().getPath()))
    return HadoopStorage(jvm, configuration, str(qualified.toString()))


def _text(path: str | os.PathLike[str]) -> str:
    given: object = path
    if isinstance(given, str):
        return text("path", given)
    if not isinstance(given, os.PathLike):
        raise ConfigError(f"{given!r} is not a path.", options=["path"], hint="Give text, or a pathlib.Path.")
    found = os.fspath(given)
    if not isinstance(found, str):
        raise ConfigError(f"The path {found!r} is bytes.", options=["path"], hint="Give text: os.fsdecode(...).")
    if urlsplit(found).scheme:
        raise ConfigError(f"The path {found} has lost slashes as a Path.", options=["path"], hint="Give a URL as text.")
    return found
