"""Compares what commands print as JSON with what docs/reference/json.md promises."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from documentation import DOCS

TESTS = Path(__file__).parent


def documented() -> dict[str, dict[str, str]]:
    """Fields and their types by the heading of their section."""
    sections = re.split(r"^## ", (DOCS / "reference" / "json.md").read_text(), flags=re.MULTILINE)[
        1:
    ]
    return {
        section.splitlines()[0]: dict(
            re.findall(r"^\| `([^`]+)` \| ([^|]+?) \|", section, re.MULTILINE)
        )
        for section in sections
    }


def leaves(value: Any, maps: set[str], path: str = "") -> Iterator[tuple[str, Any]]:
    """All values of a document that hold no others, with the paths of the documentation."""
    if path in maps or (isinstance(value, list) and f"{path}[]" not in maps and not value):
        yield path, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, maps, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, maps, f"{path}[]")
    else:
        yield path, value


def checked() -> set[str]:
    """Sections that tests name, in the files that compare documents with sections."""
    named: set[str] = set()
    for file in sorted(TESTS.glob("test_*.py")):
        source = file.read_text()
        if "from json_reference import check" in source:
            constants = (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant))
            named |= {node.value for node in constants if isinstance(node.value, str)}
    return named & documented().keys()


TYPES = {
    "text": str,
    "number": (int, float),
    "null": type(None),
    "true": bool,
    "false": bool,
    "map": dict,
    "list": list,
}


def check(section: str, document: dict[str, Any]) -> None:
    """Fails unless `document` has exactly the fields of `section`, with their types."""
    document = dict(document)
    fields = documented()[section]
    whole = {name for name, kind in fields.items() if {"map", "list"} & set(kind.split(" or "))}
    schema = document.pop("schema")
    assert schema == 1
    found = list(leaves(document, whole))
    empty = {path for path, value in found if value == [] and path not in fields}
    unseen = {field for field in fields if any(field.startswith(f"{path}[]") for path in empty)}
    found = [(path, value) for path, value in found if path not in empty]
    printed = {path for path, _ in found}
    assert not (missing := sorted(fields.keys() - printed - unseen)), (
        f"{section}: documented, but not printed: {', '.join(missing)}"
    )
    assert not (unknown := sorted(printed - fields.keys())), (
        f"{section}: printed, but not documented: {', '.join(unknown)}"
    )
    for path, value in found:
        allowed = tuple(TYPES[word] for word in fields[path].split(" or "))
        flat = tuple(t for kind in allowed for t in (kind if isinstance(kind, tuple) else (kind,)))
        assert isinstance(value, flat), (path, value)
        assert not isinstance(value, bool) or bool in flat, (path, value)
