"""Current values as others read them: streams of Arrow, and answers of SQL (R49)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from lvq_kafka.core.text.validation import instance
from lvq_kafka.errors import ConfigError, LVQError
from lvq_kafka.reading.html_tables import MOST_SHOWN, html_table
from lvq_kafka.reading.sql_answer import SqlAnswer, doubt_of
from lvq_kafka.runtime.extras import needing
from lvq_kafka.tabular.arrow_types import RecordBatchReader

if TYPE_CHECKING:
    from lvq_kafka.tabular.arrow_rows import ArrowRows

__all__ = ["CarriedValues", "CutRows"]


class CutRows(Protocol):
    """A snapshot, as this module needs it."""

    queue: str

    @property
    def about(self) -> Mapping[str, Any]:
        """The cut and the state."""

    def _cut_rows(self, columns: Sequence[str] | None = None) -> ArrowRows[Any]:
        """Return the rows, with these columns or the usual ones."""

    def __len__(self) -> int: ...

    def _first(self, most: int) -> Iterator[tuple[str, Any]]:
        """Yield keys and values, in byte order of keys. A value that cannot be decoded is bytes."""


class CarriedValues:
    """Values of a queue that others can read, each time those of one cut."""

    def _frozen(self) -> CutRows:
        """Return what is current, with its cut."""
        raise NotImplementedError

    def to_arrow(self, columns: Sequence[str] | None = None) -> RecordBatchReader:
        """Return the values of one cut as a stream of Arrow record batches (R49).

        They are in byte order of their keys. The metadata ``lvq`` of its schema has the queue, the cut and the state,
        as JSON: see `Snapshot.about`. Values of `JSON` and of codecs of your own have a type that holds them all, for
        which they are decoded once before. Needs the extra ``arrow``.

        Args:
            columns: the names of the columns, in their order; see `lvq_kafka.tabular.arrow_rows.COLUMNS`. None for the
                usual ones.

        Raises:
            ConfigError: there is no such column.
            MissingExtra: pyarrow is not installed.
            DecodeError: while the stream is read: a value cannot be decoded, and the policy is ``"raise"``.
            ReaderFailed, Closed: the view no longer follows the queue.
        """
        return self._frozen()._cut_rows(columns).reader()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the values of one cut as a C stream of Arrow, for pandas, polars and others."""
        return self._frozen()._cut_rows().reader().__arrow_c_stream__(requested_schema)

    def sql(
        self, query: str, *others: CarriedValues, parameters: Sequence[Any] | Mapping[str, Any] | None = None
    ) -> SqlAnswer:
        """Return the answer to a query in the SQL of DuckDB, with its cuts and states (R49).

        Each queue is a table of its name, with the columns of `to_arrow`; a single one is also called ``queue``. The
        query can only read: it reaches no files, no network, and no variables of the program. Needs the extra ``sql``.

        Args:
            query: one ``SELECT``.
            others: views or snapshots of further queues. Each is at a cut of its own.
            parameters: the values of ``?`` in their order, or of ``$name`` by name.

        Raises:
            SqlError: the query is malformed, names something that is not there, does more than read, or fails on the
                values.
            ConfigError: one of ``others`` is no view or snapshot, or two are of one queue.
            MissingExtra: DuckDB or pyarrow is not installed.
            DecodeError, ReaderFailed, Closed: as for `to_arrow`.
        """
        for other in others:
            instance("others", other, CarriedValues, "Give views or snapshots of other queues.")
        cuts = [values._frozen() for values in (self, *others)]
        names = [cut.queue.casefold() for cut in cuts]  # as SQL compares them
        if twice := [cut.queue for cut, name in zip(cuts, names) if names.count(name) > 1]:
            raise ConfigError(
                f"Two of these are of one name, {twice[0]}.", options=["others"], hint="Give each queue once."
            )
        with needing("sql", "SQL"):
            from lvq_kafka.tabular.sql_engine import answered
        table = answered(query, parameters, {cut.queue: cut._cut_rows() for cut in cuts})
        return SqlAnswer(table, {cut.queue: cut.about for cut in cuts})

    def _repr_html_(self) -> str:
        """Return the first values as HTML, for notebooks: escaped, with the cut and the state."""
        try:
            cut = self._frozen()
        except LVQError as error:
            return html_table(repr(self), [str(error)], [], [], 0)
        about = cut.about
        state = doubt_of(about) or about["state"]
        head = f"{about['queue']}, {len(cut):,} keys"
        return html_table(head, [state, f"at {about['offsets']}"], ["key", "value"], cut._first(MOST_SHOWN), len(cut))
