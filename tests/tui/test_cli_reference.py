"""The documents on commands and JSON say what the program does."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from answering_trainer import AnsweringTrainer, done
from command_running import Tool
from rundir_factory import RunFactory, two_branches

DOCS = Path(__file__).parents[2] / "docs"


def test_the_reference_is_what_the_commands_are_made_of() -> None:
    spec = importlib.util.spec_from_file_location("make_reference", DOCS / "make_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = (DOCS / "commands.md").read_text()
    assert module.reference() == written, "run `python docs/make_reference.py`"


def test_every_option_says_what_it_does() -> None:
    reference = (DOCS / "commands.md").read_text()
    assert re.findall(r"^\| `-.*\|  ?(?:Default.*)?\|$", reference, re.MULTILINE) == []


def documented() -> dict[str, dict[str, str]]:
    """Fields and their types by the heading of their section."""
    sections = re.split(r"^## ", (DOCS / "json.md").read_text(), flags=re.MULTILINE)[1:]
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
    fields = documented()[section]
    whole = {name for name, kind in fields.items() if kind in {"map", "list"}}
    schema = document.pop("schema")
    assert schema == 1
    found = list(leaves(document, whole))
    assert {path for path, _ in found} == set(fields)
    for path, value in found:
        allowed = tuple(TYPES[word] for word in fields[path].split(" or "))
        flat = tuple(t for kind in allowed for t in (kind if isinstance(kind, tuple) else (kind,)))
        assert isinstance(value, flat), (path, value)
        assert not isinstance(value, bool) or bool in flat, (path, value)


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(capsys)


@pytest.fixture
def live(tmp_path: Path) -> RunFactory:
    made = two_branches(tmp_path / "run", live=True)
    made.run.worker_log(0).write_text("hello\n")
    return made


@pytest.mark.parametrize("command", ["status", "ls", "journal", "logs"])
def test_json_of_what_looks(tool: Tool, live: RunFactory, command: str) -> None:
    check(f"`{command}`", tool(command, live.run.root, "--json").json)


@pytest.mark.parametrize("words", [["save"], ["restore", "--step", "300"], ["pause"], ["stop"]])
def test_json_of_what_steers(tool: Tool, live: RunFactory, words: list[str]) -> None:
    with AnsweringTrainer(live.run, done("Done.")):
        said = tool(words[0], live.run.root, *words[1:], "--json")
    check("`save`, `restore`, `pause`, `resume`, `stop`", said.json)


def test_json_of_what_cleans(tool: Tool, live: RunFactory) -> None:
    root = live.run.root
    for index in range(2):
        live.run.worker_status(index).unlink()
    check("`pin`, `unpin`", tool("pin", root, "ckpt-100", "--json").json)
    rules = ["--keep-last", "1", "--json"]
    check("`prune`", tool("prune", root, *rules, "--dry-run").json)
    check("`prune`", tool("prune", root, *rules, "--yes").json)
    check("`trash`", tool("trash", root, "--json").json)
    check("`undo`", tool("undo", root, "--json").json)
    check("`trash --empty`", tool("trash", root, "--empty", "--yes", "--json").json)


def test_json_of_errors(tool: Tool, tmp_path: Path) -> None:
    check("Errors", tool("ls", tmp_path, "--json").json)


def test_json_of_tensorboard_that_does_not_run(tool: Tool, live: RunFactory) -> None:
    said = tool("tensorboard", live.run.root, "--status", "--json")
    assert (said.code, json.loads(said.data)) == (1, {"schema": 1, "running": False})
    check("`tensorboard --stop`", tool("tensorboard", live.run.root, "--stop", "--json").json)
