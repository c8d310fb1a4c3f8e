"""Page hooks for MkDocs: parts generated from the code, and links to the names of the API."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_build"))

from command_line import reference  # noqa: E402  # MkDocs loads this file by its path
from metrics import alerts, metrics  # noqa: E402
from modules import modules  # noqa: E402
from options import option_names  # noqa: E402

from lvq_kafka import errors  # noqa: E402
from lvq_kafka.compat.qpid_messaging import exceptions  # noqa: E402

GENERATED = {
    "<!-- alerts -->": alerts,
    "<!-- commands -->": reference,
    "<!-- metrics -->": metrics,
    "<!-- modules -->": modules,
    "<!-- options -->": option_names,
}
"""Generators of parts of pages, by the marker that stands in their place."""

PACKAGES = {
    "reference/lvq_spark.md": "lvq_spark",
    "reference/qpid_messaging.md": "lvq_kafka.compat.qpid_messaging",
    "reference/testing.md": "lvq_kafka.testing",
}

EXCEPTIONS = {"lvq_kafka.compat.qpid_messaging": exceptions}
"""Modules of exceptions, by the package that has its own."""

NOTE = "*Parts of this page are generated: `make docs` builds it into the folder site.*\n"
"""Stands in pages that are not whole before they are built."""

_SECTION = re.compile(r"<!-- README: (.+?) -->")
_LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)")
_CODE = re.compile(r"<code>([A-Za-z]\w+(?:\.\w+)?)</code>(?!</a>)")


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Put what is generated, and sections of the README, in the place of their markers."""
    markdown = markdown.replace(NOTE, "", 1)
    for marker, generate in GENERATED.items():
        if marker in markdown:
            markdown = markdown.replace(marker, generate())
    return _SECTION.sub(lambda marker: _readme_section(marker[1]), markdown)


def on_page_content(html: str, page: Any, **_: object) -> str:
    """Finish the reference: link each name in a docstring to its own entry, if it has one."""
    path = page.file.src_uri
    if not path.startswith("reference/") or path.endswith("command-line.md"):
        return html
    package = PACKAGES.get(path, "lvq_kafka")
    html = html.replace("<p>::</p>\n", "").replace("::</p>", ":</p>")  # how docstrings introduce an example
    return _CODE.sub(lambda name: _linked(package, name[1]), html)


def on_post_page(output: str, page: Any, **_: object) -> str:
    """Refuse a page that would load something from elsewhere."""
    if found := _LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} loads {found[1]}")
    return output


def _readme_section(title: str) -> str:
    """Return what stands below a heading of the README, up to the next one."""
    sections = re.split(r"^##? (.+)\n", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    return dict(zip(sections[1::2], sections[2::2]))[title].strip()


def _linked(package: str, name: str) -> str:
    raised = EXCEPTIONS.get(package, errors)
    identifier = f"{raised.__name__}.{name}" if name in raised.__all__ else f"{package}.{name}"
    return f'<autoref optional identifier="{identifier}"><code>{name}</code></autoref>'
