"""Compares what commands print as JSON with its schema."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import jsonschema

from command_running import as_text, fits
from tfckpt_tui.cli.schema import json_schema
from tfckpt_tui.reports.base import Report

TESTS = Path(__file__).parent


def check(report: type[Report], document: dict[str, Any]) -> None:
    """Fails unless `document` fits the schema of `report`, with its fields in their order."""
    schema = json_schema((report,))
    # The second alternative is an error.
    jsonschema.validate(document, {**schema, "anyOf": schema["anyOf"][:1]})
    assert fits(report, document), f"{as_text(document)}\n\nis not a {report.__name__}"


def checked() -> set[str]:
    """Names of the records that tests compare documents with."""
    named: set[str] = set()
    for file in sorted(TESTS.glob("test_*.py")):
        source = file.read_text()
        if "from json_reference import check" in source:
            nodes = ast.walk(ast.parse(source))
            named |= {node.id for node in nodes if isinstance(node, ast.Name)}
    return named
