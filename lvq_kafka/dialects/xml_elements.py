"""Elements of an XML document that a stranger may have written, each with its line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

__all__ = ["Element", "XmlError", "parse_xml"]

_MOST_NESTED = 64  # the files of real brokers need eight


class XmlError(ValueError):
    """The text is not the XML that is read here, from this line on."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(what)
        self.line = line


@dataclass(slots=True)
class Element:
    """An element.

    Args:
        name: its name, without a namespace.
        line: the line on which it starts, counted from 1.
        attributes: its attributes, by name.
        children: the elements in it.
        text: the text in it, between its children, too.
    """

    name: str
    line: int
    attributes: Mapping[str, str] = field(default_factory=dict)
    children: list[Element] = field(default_factory=list)
    text: str = ""

    def all(self, *names: str) -> Iterator[Element]:
        """Yield the children with one of these names."""
        return (child for child in self.children if child.name in names)


def parse_xml(document: bytes) -> Element:
    """Parse a document, and return its outermost element.

    A document type is refused: by entities, a small text could stand for gigabytes, or for other files.

    Raises:
        XmlError: it is not XML, declares a document type, or is nested too deeply.
    """
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    open_elements: list[Element] = []
    outermost: list[Element] = []

    def start(name: str, attributes: Mapping[str, str]) -> None:
        if len(open_elements) == _MOST_NESTED:
            raise XmlError(f"elements are nested more than {_MOST_NESTED} deep", parser.CurrentLineNumber)
        local = {_local(attribute): value for attribute, value in attributes.items()}
        element = Element(_local(name), parser.CurrentLineNumber, local)
        (open_elements[-1].children if open_elements else outermost).append(element)
        open_elements.append(element)

    def text(part: str) -> None:
        open_elements[-1].text += part

    def refuse(*_: object) -> None:
        raise XmlError("it declares a type (<!DOCTYPE>), which could bring entities", parser.CurrentLineNumber)

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: open_elements.pop()
    parser.CharacterDataHandler = text
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(document, True)
    except expat.ExpatError as error:
        raise XmlError(expat.ErrorString(error.code) or "it is not XML", error.lineno) from None
    except (LookupError, ValueError) as error:
        if isinstance(error, XmlError):
            raise
        raise XmlError(f"its encoding cannot be read: {error}", 1) from None
    return outermost[0]


def _local(name: str) -> str:
    return name.rpartition(" ")[2]
