"""The JSON Schema of what commands print, from the records of `reports`; the command `schema`."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
import msgspec

from tfckpt_tui.cli.main import JsonOption, cli
from tfckpt_tui.reports.base import ErrorReport, Report

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


@click.command()
@click.argument("name", required=False, metavar="[COMMAND]")
def schema(name: str | None) -> None:
    """Print the JSON Schema of what COMMAND prints with --json; by default of every command."""
    printed = reports_by_command()
    if name is None:
        document = {command: json_schema(reports) for command, reports in printed.items()}
    elif name in printed:
        document = json_schema(printed[name])
    else:
        raise click.UsageError(
            f"{name!r} is no command with --json. There are: {', '.join(printed)}."
        )
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


def reports_by_command() -> dict[str, tuple[type[Report], ...]]:
    """Returns the documents that each command with `--json` prints, by its name."""
    context = click.Context(cli)
    commands = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    return {
        name: option.reports
        for name, command in commands.items()
        for option in (command.params if command is not None else ())
        if isinstance(option, JsonOption)
    }


def json_schema(reports: Sequence[type[Report]]) -> dict[str, Any]:
    """Returns the schema of a document that is one of `reports`, or an error."""
    documents, definitions = msgspec.json.schema_components((*reports, ErrorReport))
    inherited = {report.__name__: meanings_of(report) for report in reports}
    return {
        "$schema": _DRAFT,
        "anyOf": list(documents),
        "$defs": {
            name: _described(definition, inherited.get(name, {}))
            for name, definition in definitions.items()
        },
    }


def _described(definition: Mapping[str, Any], inherited: Mapping[str, str]) -> dict[str, Any]:
    """Returns a definition in which each field has its own part of the docstring."""
    summary, own = split_docstring(definition.get("description", ""))
    if "properties" not in definition:
        return {**definition, "description": summary}
    meanings, fields = {**inherited, **own}, definition["properties"]
    # What has a default is printed too, unless it has no value.
    printed = {*definition["required"], *(name for name in fields if "default" in fields[name])}
    return {
        **definition,
        "description": summary,
        "properties": {name: _field(field, meanings.get(name)) for name, field in fields.items()},
        "required": [name for name in fields if name in printed],
    }


def _field(schema: Mapping[str, Any], meaning: str | None) -> dict[str, Any]:
    described = {key: value for key, value in schema.items() if key != "default"}
    return described if meaning is None else {**described, "description": meaning}


def meanings_of(record: type) -> dict[str, str]:
    """Returns the meanings of the fields of a record, by their names in JSON."""
    docstrings = [kind.__doc__ or "" for kind in reversed(record.__mro__)]
    return {name: words for text in docstrings for name, words in split_docstring(text)[1].items()}


def split_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Returns what a docstring says about a class, and the meanings of its attributes."""
    summary, _, attributes = inspect.cleandoc(text).partition("\nAttributes:\n")
    matches = _ATTRIBUTE.findall(attributes)
    # A field that is a keyword of Python ends with an underscore there.
    meanings = {name.rstrip("_"): " ".join(words.split()) for name, words in matches}
    return summary.strip(), meanings
