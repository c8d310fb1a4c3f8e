"""Selectors: what they mean, which headers they read, and how errors point at the text."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading

import pytest

from lvq_kafka.core.log.records import UNREADABLE, Record
from lvq_kafka.core.queue.default_filters import LONGEST_SELECTOR
from lvq_kafka.errors import ConfigError
from lvq_kafka.selectors.like_patterns import LONGEST_TEXT
from lvq_kafka.selectors.selector import Selector
from tests.pages import block

HEADERS = (
    ("ticker", b"IBM"),
    ("price", b"1"),  # the last one counts
    ("price", b"12.5"),
    ("size", b"5"),
    ("exchange", b"NYSE"),
    ("content-type", b"text/a_b"),
    ("open", b"True"),
    ("nothing", None),
    ("empty", b""),
    ("order", b"7"),
    ("latin", b"caf\xe9"),
    ("name", "Zürich 💶".encode()),
)
RECORD = Record(2, 41, 1_700_000, b"IBM", b"", HEADERS)


def matches(text: str, record: Record = RECORD) -> bool:
    return Selector(text, "prices").matches(record)


def with_headers(headers: dict[str, str]) -> Record:
    return Record(0, 1, 1, b"k", b"v", tuple((name, text.encode()) for name, text in headers.items()))


def outcome(condition: str) -> bool | None:
    """Return the truth value of a condition in parentheses, though `Selector.matches` only says if it is true."""
    if matches(condition):
        return True
    return False if matches(f"NOT ({condition})") else None


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        # A header is read as what it is compared with.
        ("price > 12", True),
        ("price = 12.50", True),
        ("price = '12.50'", False),
        ("price = '12.5'", True),
        ("exchange = 'NYSE'", True),
        ("exchange <> 'NYSE'", False),
        ("exchange > 1", None),
        ("exchange = 1", None),
        ("ticker = lvq_key", True),  # two headers: text
        ("size = order", False),
        ("size < order", True),  # but numbers where an order is asked for
        ("size < ticker", None),
        ("open", True),
        ("open = TRUE", True),
        ("open <> true", False),
        ("NOT open", False),
        ("size", None),
        ("size = TRUE", None),
        ("(size > 1) = (price > 1)", True),
        ("(size > 1) = (absent > 1)", None),
        # No value
        ("absent = 'x'", None),
        ("absent <> 'x'", None),
        ("absent IS NULL", True),
        ("absent IS NOT NULL", False),
        ("nothing IS NULL", True),
        ("empty IS NULL", False),
        ("empty = ''", True),
        ("empty = 0", None),
        # Logic
        ("absent > 1 AND size = 6", False),
        ("absent > 1 AND size = 5", None),
        ("absent > 1 OR size = 5", True),
        ("absent > 1 OR size = 6", None),
        ("size = 6 OR size = 5 AND open", True),
        ("(size = 5 OR size = 6) AND NOT open", False),
        ("NOT size = 5 OR open", True),
        ("not Size is null", False),  # keywords in any case, names as they are
        # Arithmetic
        ("size + 2 * 3 = 11", True),
        ("(size + 2) * 3 = 21", True),
        ("size - 2 - 1 = 2", True),
        ("-size = - 5 AND +size = 5 AND - -size = 5", True),
        ("size / 2 = 2", True),
        ("-size / 2 = -2", True),  # towards zero, as in Java
        ("size / 2.0 = 2.5", True),
        ("size / 0 = 1", None),
        ("size / 0.0 > 1", None),
        ("9223372036854775807 + size > 0", None),
        ("-9223372036854775808 - 1 < 0", None),
        ("-9223372036854775808 / -1 > 0", None),
        ("-(-9223372036854775807 - 1) > 0", None),
        ("1e308 * 10 > 0", None),
        ("1e308 / 1e-300 > 0", None),
        # Literals
        ("0x1F = 31 AND 017 = 15 AND 5L = 5", True),
        ("1e1 = 10 AND 1. = 1 AND .5d = 0.5 AND 7E-1F < 1", True),
        ("'it''s' = 'it''s'", True),
        ("9007199254740993 > 9007199254740992.0", True),
        # IN, BETWEEN, LIKE
        ("exchange IN ('LSE', 'NYSE')", True),
        ("exchange NOT IN ('LSE')", True),
        ("absent NOT IN ('LSE')", None),
        ("size BETWEEN 5 AND 5 AND open", True),
        ("size NOT BETWEEN 1 AND absent", None),
        ("size NOT BETWEEN 6 AND absent", True),
        ("exchange LIKE 'N%'", True),
        ("exchange LIKE 'n%'", False),
        ("exchange LIKE '____'", True),
        ("exchange NOT LIKE '___'", True),
        ("exchange LIKE 'NYSE'", True),
        ("exchange LIKE '%Y%S%'", True),
        ("exchange LIKE '%S%Y%'", False),
        ("exchange LIKE '%YS%E'", True),
        ("exchange LIKE '%%'", True),
        ("exchange LIKE 'N.SE'", False),
        ("absent LIKE '%'", None),
        ("\"content-type\" LIKE '%/a!_b' ESCAPE '!'", True),
        ("\"content-type\" LIKE '%//a/_b' ESCAPE '/'", True),
        ("latin LIKE 'caf_'", True),
        ("name LIKE 'Z_rich _'", True),
        # Names
        ("\"order\" = '7' AND order = '7'", True),
        ('"say ""hi""" IS NULL', True),
        ("lvq_key = 'IBM'", True),
        ('"lvq_key" IS NULL', True),
        ("JMSMessageID = 'prices/2/41'", True),
        ("JMSTimestamp = 1700000", True),
        ("JMSPriority = 4", True),
        ("JMSDeliveryMode = 'PERSISTENT'", True),
        ("JMSXGroupID IS NULL AND JMSType IS NULL AND JMSCorrelationID IS NULL", True),
    ],
)
def test_a_condition_is_true_false_or_unknown(condition: str, expected: bool | None) -> None:
    assert outcome(condition) is expected


@pytest.mark.parametrize("text", ["", " 1", "1 ", "1_0", "nan", "inf", "-Infinity", "0x10", "1e", ".", "1.5.2", "١"])
def test_text_that_is_not_a_number_is_unknown(text: str) -> None:
    record = RECORD._replace(headers=(("x", text.encode()),))
    assert not matches("x > 0 OR NOT x > 0", record)


@pytest.mark.parametrize("text", ["9223372036854775808", "1e400", "1" * 100_000, "1." + "0" * 100_000])
def test_a_number_that_is_too_large_is_unknown(text: str) -> None:
    record = RECORD._replace(headers=(("x", text.encode()),))
    assert not matches("x > 0 OR x <= 0", record)


@pytest.mark.parametrize(
    ("text", "number"), [("010", "10"), ("+4", "4"), ("-0.5e1", "-5"), ("5.", "5"), (".5", "0.5"), ("-.5", "-0.5")]
)
def test_the_text_of_a_number_is_decimal(text: str, number: str) -> None:
    assert matches(f"x = {number}", RECORD._replace(headers=(("x", text.encode()),)))


def test_names_that_jms_defines_read_this_librarys_headers_where_a_message_has_them() -> None:
    record = RECORD._replace(headers=(("lvq-priority", b"7"), ("lvq-group", b"a"), ("JMSType", b"tick")))
    assert matches("JMSPriority = 7 AND JMSXGroupID = 'a' AND JMSType = 'tick'", record)
    assert matches("JMSXGroupID = 'b'", RECORD._replace(headers=(("JMSXGroupID", b"b"),)))
    assert matches("\"JMSPriority\" = 'x'", RECORD._replace(headers=(("JMSPriority", b"x"),)))
    assert not matches("JMSPriority > 0", RECORD._replace(headers=(("lvq-priority", b"high"),)))
    assert not matches("JMSTimestamp < 1", RECORD._replace(timestamp=-1))


def test_headers_that_cannot_be_read_match_no_comparison() -> None:
    record = RECORD._replace(headers=UNREADABLE)
    assert not matches("ticker = 'IBM' OR ticker <> 'IBM'", record)
    assert matches("\"lvq-unreadable\" = '1'", record)


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("price >", 8, "expected a header, a value or (, found the end"),
        ("price > AND x", 9, "expected a header, a value or (, found AND"),
        ("price > 1 2", 11, "expected an operator, AND, OR or the end, found 2"),
        ("a b", 3, "expected an operator"),
        ("and", 1, "found and"),
        ("(a = 1", 7, "expected ), found the end"),
        ("a = 1)", 6, "expected the end, found )"),
        ("a = 1 = 2", 7, "found ="),
        ("a IN ()", 7, "expected text in quotes, found )"),
        ("a IN (1)", 7, "expected text in quotes, found 1"),
        ("a IN ('x' 'y')", 11, "expected ) or a comma, found 'y'"),
        ("a LIKE 1", 8, "expected text in quotes, found 1"),
        ("a IS 5", 6, "expected NOT or NULL, found 5"),
        ("a NOT 5", 7, "expected BETWEEN, IN or LIKE, found 5"),
        ("a = NULL", 5, "IS NULL"),
        ("a != 1", 3, "Not equal is <>"),
        ("a == 1", 4, "Equal is one =."),
        ("a =< 1", 4, "At most is <=."),
        ("a => 1", 4, "At least is >=."),
        ("a.b = 1", 2, "in double quotes"),
        ("a = 'x", 5, "not closed"),
        ("a = 1;", 6, "';' cannot be here"),
        ("a\xa0= 1", 2, "'\\xa0' cannot be here"),
        ("a = 1 \x00", 7, "'\\x00' cannot be here"),
        ("a > 'x'", 3, "can only be compared with = and <>"),
        ("a > TRUE", 3, "can only be compared with = and <>"),
        ("'a' = 1", 5, "text in quotes is compared with a number"),
        ("a = 1 AND JMSPriority = 'high'", 23, "a number is compared with text in quotes"),
        ("a BETWEEN 'x' AND 'y'", 11, "text in quotes is not a number"),
        ("a + TRUE > 1", 5, "a condition is not a number"),
        ("JMSTimestamp LIKE '1%'", 1, "LIKE needs the name of a header"),
        ("'a' IN ('a')", 1, "IN needs the name of a header"),
        ("1 IS NULL", 1, "IS NULL needs the name of a header"),
        ("a LIKE 'x' ESCAPE 'ab'", 19, "ESCAPE needs one character, not 2"),
        ("a LIKE 'x!' ESCAPE '!'", 8, "'!' is the last character"),
        ("a LIKE 'x!y' ESCAPE '!'", 8, "'!' precedes 'y'"),
        ("5", 1, "a number is not a condition"),
        ("a AND 'x'", 7, "text in quotes is not a condition"),
        ("09 = a", 1, "octal"),
        ("9223372036854775809 = a", 1, "too large for 64 bits"),
        ("0x" + "F" * 100_000 + " = a", None, "65,536 are allowed"),
        ("1e999 = a", 1, "too large for a double"),
        ("'\ud800' = a", 1, "UTF-8 cannot encode"),
    ],
)
def test_an_error_names_the_column_and_what_was_expected(text: str, column: int | None, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Selector(text, "prices")
    assert said in str(caught.value)
    assert caught.value.options == ("selector",)
    assert column is None or f"at column {column}:" in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        *("größe", "变量", "हिन्दी", "ชื่อ", "e\u0301tat", "السعر", "x\u0663", "ⅷ", "ªº", "ʰx"),  # letters, marks, digits
        *("€x", "x£", "$", "¥", "฿", "₿1"),  # currency signs
        *("_x", "x\u203fy", "\u203fx", "x\uff3f", "\ufe33"),  # connectors
        *("x\u200dy", "x\u00ad", "x\ufeff", "x\x00", "x\x1b", "x\x7f", "x\x85"),  # characters that Java ignores
        *("ın", "ANDé", "or\u0301", "likе", "ıs", "İn", "bet\u212aween", "and\u203f", "true\u0660", "not€"),
    ],
)
def test_a_name_is_an_identifier_as_in_java(name: str) -> None:
    """As `Character.isJavaIdentifierStart` and `isJavaIdentifierPart` say."""
    for condition in (f"{name} = 'v'", f"NOT({name}<>'v')and {name} IS NOT NULL", f"{name} IN('v')or {name} LIKE 'v'"):
        assert matches(condition, with_headers({name: "v"}))
        assert not matches(condition, with_headers({}))


@pytest.mark.parametrize(
    ("text", "column"),
    [
        *(("½x = 1", 1), ("x² = 1", 2), ("x½ = 1", 2), ("\u0301x = 1", 1), ("٣x = 1", 1), ("x\u20dd = 1", 2)),
        *(
            ("x’s = 1", 2),
            ("x–y = 1", 2),
            ("a = 1 OR x¬y = 2", 11),
            ("😀 = 1", 1),
            ("\u200dx = 1", 1),
            ("x\u2028 = 1", 2),
        ),
        *(("a = 1 or b\ud800 = 1", 11), ("x\u3000= 1", 2), ("x\ue000 = 1", 2)),
    ],
)
def test_a_name_that_is_no_identifier_in_java_is_an_error(text: str, column: int) -> None:
    with pytest.raises(ConfigError, match=f"at column {column}: .* cannot be here"):
        Selector(text, "prices")
    quotes = text.split(" = ")[0].split()[-1]
    if quotes.isprintable():
        Selector(f'"{quotes}" = 1', "prices")


@pytest.mark.parametrize(
    "text",
    [
        "a li\u212ae 'x'",
        "a ıs NULL",
        "a ı\u006e ('x')",
        "a lıke 'x'",
        "a LIKE 'x' e\u017fcape '!'",
        "a = fal\u017fe",
        "a AND\u0301 b",
    ],
)
def test_a_keyword_has_letters_of_ascii(text: str) -> None:
    """The Kelvin sign, the long s and the dotless i are other letters, though Python equates some in any case."""
    if "= " in text:
        assert not matches(text, with_headers({"a": "false"}))
        assert matches(text, with_headers({"a": "v", "fal\u017fe": "v"}))
    else:
        with pytest.raises(ConfigError, match="expected"):
            Selector(text, "prices")


def test_an_error_shows_the_place_with_a_caret() -> None:
    with pytest.raises(ConfigError) as caught:
        Selector("a = 1 AND\n b = = 2", "prices", option="default_filters")
    assert str(caught.value) == (
        "The default_filters is wrong at line 2, column 6: expected a header, a value or (, found =.\n"
        "     b = = 2\n"
        "         ^"
    )
    assert caught.value.options == ("default_filters",)


def test_the_page_shows_what_an_error_says() -> None:
    with pytest.raises(ConfigError) as caught:
        Selector("price > AND size > 5", "prices")
    assert block("docs/options/selectors.md", "text", "expected") == str(caught.value) + "\n"


def test_an_error_in_a_long_text_shows_the_part_around_it() -> None:
    with pytest.raises(ConfigError) as caught:
        Selector("x" * 500 + " = = 1 AND " + "y" * 500, "prices")
    text, caret = str(caught.value).splitlines()[1:3]
    assert len(text) < 90
    assert text[caret.index("^")] == "="


@pytest.mark.parametrize("wrong", ["", "  ", "\n", None, 5, b"a = 1", ["a = 1"]])
def test_a_selector_is_text_and_not_empty(wrong: object) -> None:
    with pytest.raises(ConfigError) as caught:
        Selector(wrong, "prices")  # type: ignore[arg-type]
    assert caught.value.options == ("selector",)


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 OR " * 1_000_000 + "a = 1",
        "NOT " * 10_000 + "a",
        "a = " + "-" * 10_000 + "1",
        "a = 1 OR (b = 2 AND (" * 1_000 + "c" + "))" * 1_000,
        "(" * 60_000,
        "a LIKE '" + "%a" * 10_000 + "b'",
    ],
    ids=["length", "NOT", "signs", "nested", "open", "pattern"],
)
def test_a_text_that_asks_too_much_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Selector(text, "prices")
    assert len(str(caught.value)) < 1_000


def test_a_long_text_that_is_not_deep_is_compiled() -> None:
    conditions = LONGEST_SELECTOR // len("size = 7 OR ") - 1
    assert matches("size = 7 OR " * conditions + "size = 5")
    assert matches("(" * 30_000 + "size = 5" + ")" * 30_000)
    assert matches("size" + " + 1" * 10_000 + " = 10005")
    assert matches(f"size NOT IN ({', '.join(map(repr, map(str, range(1000, 9000))))})")


def test_the_match_of_a_text_too_long_for_a_pattern_is_unknown_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fits, long = with_headers({"a": "x" * LONGEST_TEXT}), with_headers({"a": "x" * (LONGEST_TEXT + 1)})
    for condition in ("a LIKE '%'", "a LIKE 'x%'", "a LIKE '%x' AND a IS NOT NULL"):
        assert matches(condition, fits)
        for selector in (Selector(condition, "prices"), Selector(f"NOT ({condition})", "prices")):
            caplog.clear()
            assert not selector.matches(long)
            assert selector.by_headers is not None
            assert not selector.by_headers(long.headers)
            assert selector.unjudged == 2
            (line,) = caplog.messages
            assert "LIKE takes 65,536 bytes, and a text has 65,537" in line
            selector.matches(with_headers({"b": "x"}))
            assert selector.unjudged == 2, "a header that is not there is no long text"
    either = Selector("a LIKE '%y' OR a IS NOT NULL", "prices")
    assert either.matches(long)
    assert either.unjudged == 0, "the outcome is known"
    key = Selector("lvq_key LIKE 'k%' AND b LIKE 'x%'", "prices")
    assert not key.matches(Record(0, 1, 1, b"k" * (LONGEST_TEXT + 1), b"v", (("b", b"x"),)))
    assert key.unjudged == 1


def test_no_pattern_takes_long() -> None:
    record = RECORD._replace(headers=(("x", b"a" * 100_000),))
    assert not matches("x LIKE '" + "%a" * 500 + "%b'", record)
    assert not matches("x LIKE '%" + "a_" * 20 + "b%'", record)


def test_a_selector_can_be_pickled_and_compared() -> None:
    selector = Selector("size = 5", "prices")
    copy = pickle.loads(pickle.dumps(selector))
    assert copy == selector
    assert hash(copy) == hash(selector)
    assert copy != Selector("size = 5", "orders")
    assert copy.matches(RECORD)
    assert repr(copy) == "Selector('size = 5')"


def test_threads_compile_at_once() -> None:
    found: list[bool] = []
    threads = [
        threading.Thread(target=lambda n=n: found.append(matches(f"size = 5 AND {n} = {n}")))  # type: ignore[misc]
        for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 16


def test_a_missing_parser_names_the_extra() -> None:
    program = (
        "import sys\n"
        "sys.modules['lark'] = None\n"
        "from lvq_kafka.errors import MissingExtra\n"
        "from lvq_kafka.selectors.selector import Selector\n"
        "try:\n"
        "    Selector('a = 1', 'prices')\n"
        "except MissingExtra as error:\n"
        "    print(error.extra, error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True)
    assert ran.stdout.startswith("selectors The option selector needs the package lark")
    assert ran.stdout.endswith("pip install 'lvq-kafka[selectors]'\n")


@pytest.mark.parametrize(
    ("text", "headers", "holds"),
    [
        ("price > 5", [("price", b"1"), ("price", b"9")], True),
        ("price > 5", [("price", b"9"), ("price", b"1")], False),
        ("price > 5", [("price", b"9"), ("other", b"1")], True),
        ("price > 5", [("price", None)], False),
        ("price > 5", [], False),
        ("price > 5", [("price", b"")], False),
        ("price > 5", [("price", b"7.5")], True),
        ("price > 5", [("price", b"9" * 19)], False),
        ("price > 5", [("price", b"0" * 18 + b"9")], True),
        ("price IS NULL", [], True),
        ("price IS NULL", [("price", None)], True),
        ("NOT price = 'a' OR price = 'b'", [("price", b"b")], True),
        ("price BETWEEN 1 AND 3", [("price", b"2")], True),
        ("price > cost", [("price", b"2"), ("cost", b"1")], True),
        ("JMSPriority > 5", [], False),
        ("JMSPriority > 5", [("lvq-priority", b"9")], True),
        ("JMSXGroupID = 'a'", [("JMSXGroupID", b"a")], True),
        ("JMSXGroupID = 'a'", [("lvq-group", b"b"), ("JMSXGroupID", b"a")], False),
        ("1 = 1", [("price", b"1")], True),
    ],
)
def test_r26_headers_alone_are_judged_as_the_whole_record_is(
    text: str, headers: list[tuple[str, bytes | None]], holds: bool
) -> None:
    selector = Selector(text, "t")
    assert selector.by_headers is not None
    assert selector.by_headers(headers) is holds
    assert selector.matches(Record(0, 0, 0, b"k", b"v", tuple(headers))) is holds
