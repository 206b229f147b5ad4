"""Compares what commands print as JSON with what docs/reference/json.md promises."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from documentation import DOCS


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
    assert {path for path, _ in found} | unseen == set(fields)
    for path, value in found:
        allowed = tuple(TYPES[word] for word in fields[path].split(" or "))
        flat = tuple(t for kind in allowed for t in (kind if isinstance(kind, tuple) else (kind,)))
        assert isinstance(value, flat), (path, value)
        assert not isinstance(value, bool) or bool in flat, (path, value)
