"""Values that are dataclasses, models of pydantic, or structs of msgspec: JSON in the log, and columns in Arrow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import reduce
from typing import Any, Literal
from uuid import UUID

import msgspec
import pyarrow as pa
import pydantic
import pydantic.dataclasses
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka import Codec, LastValueQueue
from lvq_kafka.codecs import codec_of, form_of
from lvq_kafka.core.facts import Position
from lvq_kafka.errors import ConfigError, DecodeError, EncodeError
from lvq_kafka.tabular.arrow_rows import _type_of
from lvq_kafka.tabular.declared_shapes import declared_shape, is_settled
from lvq_kafka.tabular.value_shapes import fitting, joined, shape_of
from lvq_kafka.testing import MemoryCluster

HERE = Position("prices", 2, 41)


@dataclass(frozen=True)
class Quote:
    price: float
    size: int = 0


class QuoteModel(pydantic.BaseModel):
    price: float
    size: int = 0


@pydantic.dataclasses.dataclass
class QuoteData:
    price: float
    size: int = 0


class QuoteStruct(msgspec.Struct):
    price: float
    size: int = 0


MODELS = [Quote, QuoteModel, QuoteData, QuoteStruct]


class Side(Enum):
    BUY = "buy"
    SELL = "sell"


@dataclass
class Party:
    name: str
    of: Party | None = None


@dataclass
class Order:
    side: Side
    at: datetime
    day: date
    opens: time
    limit: Decimal
    number: UUID
    seal: bytes
    kind: Literal["limit", "market"] = "limit"
    parties: list[Party] = field(default_factory=list)
    tags: frozenset[str] = frozenset()
    pair: tuple[int, str] = (0, "")
    notes: Mapping[str, int | str] = field(default_factory=dict)
    rest: Any = None
    path: Sequence[float] = ()
    total: float = field(init=False, default=0.0)


def written(codec: Codec[Any], value: object) -> bytes:
    return codec.encode(value, "prices", [])


def read(codec: Codec[Any], data: bytes) -> Any:
    return codec.decode_at(data, HERE)


@pytest.mark.parametrize("model", MODELS)
def test_a_value_of_a_model_is_json(model: Any) -> None:
    codec = codec_of(model)
    data = written(codec, model(price=118.5, size=3))
    assert data == b'{"price":118.5,"size":3}'
    assert read(codec, data) == model(price=118.5, size=3)
    assert (codec.name, codec.model, form_of(codec)) == (model.__name__, model, "json")


@pytest.mark.parametrize("model", MODELS)
def test_a_field_may_be_new_or_missing_if_it_has_a_default(model: Any) -> None:
    assert read(codec_of(model), b'{"price": 1, "venue": "NYSE"}') == model(price=1.0, size=0)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("data", [b'{"price": "x"}', b"{}", b"[]", b"null", b"{", b"\xff", b'{"price": null}', b""])
def test_a_value_that_is_not_of_the_model_cannot_be_decoded(model: Any, data: bytes) -> None:
    with pytest.raises(DecodeError, match="prices/2/41") as error:
        read(codec_of(model), data)
    assert model.__name__ in str(error.value)
    assert codec_of(model).decode_at(data, HERE, raw_on_error=True) == data


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("value", [{"price": 1.0}, None, b"{}", "x"])
def test_a_value_of_another_type_cannot_be_encoded(model: Any, value: object) -> None:
    with pytest.raises(EncodeError, match=f"it is no {model.__name__}"):
        written(codec_of(model), value)


def test_an_error_of_a_dataclass_names_the_field() -> None:
    data = written(codec_of(Order), order(parties=[Party("x")])).replace(b'"name":"x"', b'"name":1')
    with pytest.raises(DecodeError, match="parties: name: 1 is no text"):
        read(codec_of(Order), data)


def order(**given: Any) -> Order:
    usual: dict[str, Any] = {
        "side": Side.SELL,
        "at": datetime(2026, 11, 29, 20, 0, tzinfo=UTC),
        "day": date(2026, 11, 29),
        "opens": time(9, 30),
        "limit": Decimal("118.50"),
        "number": UUID(int=7),
        "seal": b"\xff",
    }
    return Order(**(usual | given))


VALUES = st.builds(
    order,
    side=st.sampled_from(Side),
    at=st.datetimes(timezones=st.sampled_from([None, UTC])),
    limit=st.decimals(allow_nan=False),
    number=st.uuids(),
    seal=st.binary(max_size=4),
    kind=st.sampled_from(["limit", "market"]),
    parties=st.lists(st.builds(Party, st.text("aé"), st.none() | st.builds(Party, st.text("ab"))), max_size=2),
    tags=st.frozensets(st.text("ab"), max_size=2),
    pair=st.tuples(st.integers(), st.text("a")),
    notes=st.dictionaries(st.text("ab"), st.integers() | st.text("a"), max_size=2),
    rest=st.none() | st.booleans() | st.integers() | st.lists(st.text("a"), max_size=2),
    path=st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=2),
)


@given(VALUES)
def test_a_dataclass_comes_back(value: Order) -> None:
    assert read(codec_of(Order), written(codec_of(Order), value)) == value


@given(st.binary() | VALUES.map(lambda value: written(codec_of(Order), value)[:-3]))
def test_a_damaged_dataclass_is_an_error_of_decoding(data: bytes) -> None:
    with pytest.raises(DecodeError):
        read(codec_of(Order), data)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_dataclass_has_no_number_that_json_lacks(value: float) -> None:
    with pytest.raises(EncodeError):
        written(codec_of(Quote), Quote(value))


def test_a_field_that_json_has_no_form_for_is_named_when_the_queue_is_opened(memory_cluster: MemoryCluster) -> None:
    odd = dataclasses.make_dataclass("Odd", [("at", complex)])
    with pytest.raises(ConfigError, match=r"Odd\.at: .*complex.* has no form in JSON") as error:
        LastValueQueue("prices", key_header=None, value=odd, cluster=memory_cluster)
    assert error.value.options == ("value",)


@pytest.mark.parametrize("value", [dict, int, object, "json", None, Quote(1.0), msgspec])
def test_a_type_without_fields_is_no_codec(value: Any) -> None:
    with pytest.raises(ConfigError, match="is not a codec") as error:
        codec_of(value)
    assert "a dataclass" in error.value.hint


@pytest.mark.parametrize("model", MODELS)
def test_r49_a_model_is_the_type_of_the_column_even_without_values(model: Any, memory_cluster: MemoryCluster) -> None:
    queue = LastValueQueue.declare("quotes", key_header="ticker", value=model, cluster=memory_cluster)
    with queue.producer() as producer, queue.view() as view:
        kind = pa.struct([pa.field("price", pa.float64()), pa.field("size", pa.int64())])
        assert view.to_arrow().schema.field("value").type == kind
        producer.put("IBM", model(price=118.5)).result(5)
        view.barrier()
        assert view["IBM"] == model(price=118.5)
        assert pa.table(view)["value"].to_pylist() == [{"price": 118.5, "size": 0}]
        assert list(view.sql("SELECT value.price FROM quotes")) == [(118.5,)]


@given(st.lists(VALUES, max_size=3))
def test_r49_dataclasses_with_parts_of_any_type_have_columns(values: list[Order]) -> None:
    shape = reduce(joined, map(shape_of, values), declared_shape(Order))
    assert not is_settled(declared_shape(Order))
    assert pa.array(map(fitting(shape), values), _type_of(shape), size=len(values)).null_count == 0


class Tagged(msgspec.Struct):
    tag: str | dict[str, int] | None = None


def test_r49_a_part_that_may_be_a_mapping_has_the_type_that_its_values_have() -> None:
    values = [Tagged("x"), Tagged({"a": 1}), Tagged()]
    shape = reduce(joined, map(shape_of, values), declared_shape(Tagged))
    assert not is_settled(declared_shape(Tagged))
    cells = pa.array(map(fitting(shape), values), _type_of(shape)).to_pylist()
    assert [cell["tag"] for cell in cells] == ['"x"', '{"a": 1}', None]


def test_r49_a_number_of_a_model_that_has_no_place_ends_the_stream(memory_cluster: MemoryCluster) -> None:
    queue = LastValueQueue.declare("quotes", key_header="ticker", value=Quote, cluster=memory_cluster)
    with queue.producer() as producer, queue.view() as view:
        producer.put("IBM", Quote(1.0, 2**70)).result(5)
        view.barrier()
        with pytest.raises(DecodeError, match="quotes/0/0 has no place in a column: it has an integer of more than 64"):
            view.to_arrow().read_all()
    with queue.view(undecodable="raw") as view:
        assert pa.table(view)["value"].to_pylist() == [None]
