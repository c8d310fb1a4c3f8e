"""The grammar of selectors, and errors that point at a place in the text."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, cast
from unicodedata import category

from lark import Lark, Token, UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.exceptions import VisitError
from lark.visitors import Transformer_NonRecursive

from lvq_kafka.core.text.excerpts import excerpt, place_in
from lvq_kafka.core.text.quoting import brief
from lvq_kafka.errors import ConfigError
from lvq_kafka.selectors import operands
from lvq_kafka.selectors.operands import Misplaced, Operand
from lvq_kafka.selectors.sql_logic import Clause, Term

__all__ = ["Compiled", "compile_selector"]

# Rules whose name begins with "?" vanish where they have one child, tokens whose name begins with "_" always. The
# parser reduces a list such as a AND b AND c at once, so its depth is that of parentheses and not that of the text.
_GRAMMAR = r"""
?start: disjunction
?disjunction: conjunction (_OR conjunction)*
?conjunction: negation (_AND negation)*
?negation: NOT negation -> negated
    | predicate
?predicate: total
    | total COMPARISON total -> comparison
    | total [NOT] _BETWEEN total _AND total -> between
    | total [NOT] _IN "(" TEXT ("," TEXT)* ")" -> membership
    | total [NOT] _LIKE TEXT [_ESCAPE TEXT] -> like
    | total _IS [NOT] _NULL -> is_null
?total: product (SIGN product)*
?product: factor (FACTOR factor)*
?factor: SIGN factor -> signed
    | atom
?atom: NAME -> name
    | QUOTED_NAME -> quoted_name
    | NUMBER -> number
    | TEXT -> text
    | (TRUE | FALSE) -> boolean
    | "(" disjunction ")"

COMPARISON: "<>" | "<=" | ">=" | "<" | ">" | "="
SIGN: "+" | "-"
FACTOR: "*" | "/"
TEXT: /'(?:[^']|'')*'/
QUOTED_NAME: /"(?:[^"]|"")+"/
NUMBER: /0[xX][0-9a-fA-F]+[lL]?/
    | /(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?/
    | /[0-9]+(?:[eE][+-]?[0-9]+[fFdD]?|[fFdDlL])?/
NAME: /(?:[A-Za-z_$]|[^\x00-\x7f])(?:@PART)*/
_OR.1: /(?ai:or)(?!@PART)/
_AND.1: /(?ai:and)(?!@PART)/
NOT.1: /(?ai:not)(?!@PART)/
_BETWEEN.1: /(?ai:between)(?!@PART)/
_IN.1: /(?ai:in)(?!@PART)/
_LIKE.1: /(?ai:like)(?!@PART)/
_ESCAPE.1: /(?ai:escape)(?!@PART)/
_IS.1: /(?ai:is)(?!@PART)/
_NULL.1: /(?ai:null)(?!@PART)/
TRUE.1: /(?ai:true)(?!@PART)/
FALSE.1: /(?ai:false)(?!@PART)/
%ignore /[ \t\f\r\n]+/
""".replace("@PART", r"[A-Za-z0-9_$\x00-\x08\x0e-\x1b\x7f]|[^\x00-\x7f]")
# A character beyond ASCII can only be in a name, or in quotes. So a name has them all, and is judged when it is read.
_FIRST = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"})  # categories of Unicode, as in Java
_FURTHER = _FIRST | {"Nd", "Mn", "Mc", "Cf", "Cc"}

_VALUES = {"NAME", "QUOTED_NAME", "NUMBER", "TEXT", "TRUE", "FALSE", "LPAR", "SIGN", "NOT"}
_OPERATORS = {"COMPARISON", "SIGN", "FACTOR", "_BETWEEN", "_IN", "_LIKE", "_IS", "NOT"}
_NAMES = {"LPAR": "(", "RPAR": ")", "COMMA": "a comma", "TEXT": "text in quotes", "$END": "the end"}
_SPELLINGS = {
    "!": "Not equal is <>.",
    "&": "Write AND.",
    "|": "Write OR.",
    "[": "A list is in parentheses.",
    ".": "Write the name of the header in double quotes.",
}
_COMPARISONS = {"==": "Equal is one =.", "=<": "At most is <=.", "=>": "At least is >=."}


class _TreeReader(Transformer_NonRecursive[Token, Any]):
    """Turns the parts of a parsed text into operands, without recursion."""

    def __init__(self, topic: str) -> None:
        super().__init__(visit_tokens=False)
        self._topic = topic

    def disjunction(self, parts: list[Operand]) -> Operand:
        return operands.any_of(parts)

    def conjunction(self, parts: list[Operand]) -> Operand:
        return operands.all_of(parts)

    def negated(self, parts: list[Any]) -> Operand:
        word, operand = parts
        return operands.negation(operand, _at(word))

    def comparison(self, parts: list[Any]) -> Operand:
        left, symbol, right = parts
        return operands.comparison(left, str(symbol), right, _at(symbol))

    def between(self, parts: list[Any]) -> Operand:
        operand, word, low, high = parts
        return _unless(word, operands.between(operand, low, high))

    def membership(self, parts: list[Any]) -> Operand:
        operand, word, *texts = parts
        return _unless(word, operands.membership(operand, [_unquoted(text) for text in texts]))

    def like(self, parts: list[Any]) -> Operand:
        operand, word, pattern, escape = parts
        character, escape_at = (None, 0) if escape is None else (_unquoted(escape), _at(escape))
        return _unless(word, operands.like(operand, _unquoted(pattern), _at(pattern), character, escape_at))

    def is_null(self, parts: list[Any]) -> Operand:
        operand, word = parts
        return _unless(word, operands.is_null(operand))

    def total(self, parts: list[Any]) -> Operand:
        first, *rest = parts
        return operands.calculation(first, list(zip(map(str, rest[::2]), rest[1::2])))

    product = total

    def signed(self, parts: list[Any]) -> Operand:
        sign, operand = parts
        return operands.signed(str(sign), operand, _at(sign))

    def name(self, parts: list[Token]) -> Operand:
        _check_name(parts[0])
        return operands.identifier(str(parts[0]), _at(parts[0]), self._topic)

    def quoted_name(self, parts: list[Token]) -> Operand:
        return operands.header(_unquoted(parts[0]), _at(parts[0]))

    def number(self, parts: list[Token]) -> Operand:
        return operands.number(str(parts[0]), _at(parts[0]))

    def text(self, parts: list[Token]) -> Operand:
        return operands.literal("text", _unquoted(parts[0]), _at(parts[0]))

    def boolean(self, parts: list[Token]) -> Operand:
        return operands.literal("boolean", parts[0].lower() == "true", _at(parts[0]))


def _at(token: Token) -> int:
    return token.start_pos or 0


def _check_name(name: Token) -> None:
    """Check that a name is an identifier as in Java."""
    if name.isascii():
        return
    for place, character in enumerate(name):
        if category(character) not in (_FURTHER if place else _FIRST):
            hint = "Write the name of the header in double quotes." if place else ""
            raise Misplaced(f"{character!r} cannot be here", _at(name) + place, hint=hint)


def _unquoted(token: Token) -> str:
    quote = token[0]
    return token[1:-1].replace(quote * 2, quote)


def _unless(word: Token | None, operand: Operand) -> Operand:
    return operand if word is None else operands.negation(operand, operand.at)


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", lexer="basic")


class Compiled(NamedTuple):
    """A selector as a clause."""

    clause: Clause
    of_record: bool
    """Whether it needs more of a record than its headers."""
    reads: frozenset[str]
    """The names of the headers that it reads."""
    likes: tuple[Term[bytes], ...]
    """The texts that it compares with patterns."""


def compile_selector(text: str, topic: str, option: str) -> Compiled:
    """Compile a selector for messages of a topic.

    Raises:
        ConfigError: the text is not a selector.
    """
    try:
        operand = _operand(text, topic)
        return Compiled(operands.clause_of(operand), operand.of_record, operand.reads, operand.likes)
    except UnexpectedInput as error:
        raise _error(text, option, _fault(text, error)) from None
    except Misplaced as error:
        raise _error(text, option, error) from None


def _operand(text: str, topic: str) -> Operand:
    try:
        operand: Any = _TreeReader(topic).transform(_parser().parse(text))
    except VisitError as error:
        raise error.orig_exc from None
    return cast(Operand, operand)


def _fault(text: str, error: UnexpectedInput) -> Misplaced:
    """Return what is wrong with a text that cannot be parsed."""
    if isinstance(error, UnexpectedCharacters):
        at = cast(int, error.pos_in_stream)
        if text[at] in "'\"":
            return Misplaced("this quote is not closed, or has nothing in it", at, hint="Within a text, double it.")
        return Misplaced(f"{text[at]!r} cannot be here", at, hint=_SPELLINGS.get(text[at], ""))
    assert isinstance(error, UnexpectedToken)
    token, expected = error.token, _expected(error.accepts or set())
    if token.type == "$END":
        return Misplaced(f"expected {expected}, found the end", len(text))
    if token.type == "_NULL":
        return Misplaced("NULL is no value", _at(token), hint="Write IS NULL or IS NOT NULL.")
    at = _at(token)
    hint = _COMPARISONS.get(text[max(at - 1, 0) : at + 1], "")
    return Misplaced(f"expected {expected}, found {brief(token)}", at, hint=hint)


def _expected(names: set[str]) -> str:
    """Name what may follow, in few words."""
    words = []
    if "NAME" in names:
        words.append("a header, a value or (")
        names = names - _VALUES
    elif "FACTOR" in names:
        words.append("an operator")
        names = names - _OPERATORS
    words += sorted(_NAMES.get(name, name.lstrip("_")) for name in names)
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def _error(text: str, option: str, fault: Misplaced) -> ConfigError:
    return ConfigError(
        f"The `{option}` is wrong at {place_in(text, fault.at)}: {fault}.\n{excerpt(text, fault.at)}\n",
        options=[option],
        hint=fault.hint,
    )
