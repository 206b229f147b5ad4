"""The reference of commands and JSON matches the program."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import click
import pytest
from answering_trainer import AnsweringTrainer, done
from json_reference import check, checked, documented
from rundir_factory import RunFactory, two_branches

from command_running import Tool
from documentation import DOCS, load_tool
from tfckpt_trainer.errors import ExitCode, TfckptError
from tfckpt_tui.cli.main import cli


def test_the_generated_pages_match_the_definitions() -> None:
    for page, text in load_tool("make_reference").pages().items():
        assert page.read_text() == text, "run `python docs/tools/make_reference.py`"


def test_every_option_has_a_description() -> None:
    reference = (DOCS / "reference" / "commands.md").read_text()
    assert re.findall(r"^\| `-.*\|  ?(?:Default.*)?\|$", reference, re.MULTILINE) == []


def test_every_command_with_json_is_documented_and_no_other() -> None:
    context = click.Context(cli)
    commands = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    with_json = {
        name
        for name, command in commands.items()
        if command is not None and any("--json" in option.opts for option in command.params)
    }
    named = {word.split()[0] for head in documented() for word in re.findall(r"`([^`]+)`", head)}
    page = "docs/reference/json.md"
    missing, other = sorted(with_json - named), sorted(named - with_json)
    assert missing == [], f"Describe what these commands print in {page}: {', '.join(missing)}."
    assert other == [], f"These have no --json; remove them from {page}: {', '.join(other)}."


def test_every_documented_section_is_checked() -> None:
    assert sorted(documented().keys() - checked()) == [], "Call `check` with its heading in a test."


def test_a_check_names_the_fields_that_differ() -> None:
    document = {"schema": 1, "error": {"code": 2, "nam": "usage", "message": "No run."}}
    with pytest.raises(
        AssertionError, match=r"`?Errors`?: documented, but not printed: error.name$"
    ):
        check("Errors", document)
    document["error"] = {"code": 2, "name": "usage", "message": "No run.", "hint": ""}
    with pytest.raises(AssertionError, match=r"Errors: printed, but not documented: error.hint$"):
        check("Errors", document)


@pytest.mark.parametrize("document", ["json.md", "commands.md"])
def test_every_exit_code_is_documented(document: str) -> None:
    text = (DOCS / "reference" / document).read_text()
    if document == "commands.md":
        listed = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
        assert listed == {int(code) for code in ExitCode}
    else:
        words = set(re.findall(r"`(\w+)`", text.partition("| `error.name` |")[2].splitlines()[0]))
        reported = {kind.exit_code for kind in (TfckptError, *TfckptError.__subclasses__())}
        assert words == {code.name.lower() for code in reported}


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(capsys)


@pytest.fixture
def live(tmp_path: Path) -> RunFactory:
    made = two_branches(tmp_path / "run", live=True)
    made.run.worker_log(0).write_text("hello\n")
    return made


@pytest.mark.parametrize("section", ["`status`", "`ls`", "`journal`", "`logs`"])
def test_json_of_status_commands(tool: Tool, live: RunFactory, section: str) -> None:
    check(section, tool(section.strip("`"), live.run.root, "--json").json)


@pytest.mark.parametrize("section", ["`status`", "`ls`"])
def test_json_of_status_commands_with_little_data(tool: Tool, tmp_path: Path, section: str) -> None:
    made = RunFactory(tmp_path)
    made.checkpoint(1, name="model", recorded=False)
    unknown = ("loss", "step_seconds", "step_seconds_p95", "input_wait_seconds")
    unknown += ("examples_per_second", "cpu_percent", "memory_bytes")
    made.run.create()
    made.live_worker(0, **dict.fromkeys(unknown))
    (tmp_path / "best.keras").write_bytes(b"x")
    check(section, tool(section.strip("`"), tmp_path, "--json").json)


@pytest.mark.parametrize("words", [["save"], ["restore", "--step", "300"], ["pause"], ["stop"]])
def test_json_of_control_commands(tool: Tool, live: RunFactory, words: list[str]) -> None:
    with AnsweringTrainer(live.run, done("Done.")):
        said = tool(words[0], live.run.root, *words[1:], "--json")
    check("`save`, `restore`, `pause`, `resume`, `stop`", said.json)


def test_json_of_prune_commands(tool: Tool, live: RunFactory) -> None:
    root = live.run.root
    for index in range(2):
        live.run.worker_status(index).unlink()
    check("`pin`, `unpin`", tool("pin", root, "ckpt-100", "--json").json)
    rules = ["--keep-last", "1", "--json"]
    check("`prune`", tool("prune", root, *rules, "--dry-run").json)
    check("`prune`", tool("prune", root, *rules, "--yes").json)
    check("`trash`", tool("trash", root, "--json").json)
    check("`undo`", tool("undo", root, "--json").json)
    check("`trash empty`", tool("trash", root, "empty", "--yes", "--json").json)


def test_json_of_a_launch_and_of_a_stop_by_force(tool: Tool, tmp_path: Path) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(300)"]
    try:
        said = tool("launch", tmp_path / "run", "--detach", "--json", "--", *sleep)
    finally:
        stopped = tool("stop", tmp_path / "run", "--force", "--json")
    check("`launch`, `demo`", said.json)
    check("`stop --force`", stopped.json)


def test_json_of_a_command_that_is_not_waited_for(tool: Tool, live: RunFactory) -> None:
    said = tool("pause", live.run.root, "--no-wait", "--json")
    check("`save`, `restore`, `pause`, `resume`, `stop`", said.json)


def test_json_of_errors(tool: Tool, tmp_path: Path) -> None:
    check("Errors", tool("ls", tmp_path, "--json").json)


def test_json_of_tensorboard_that_does_not_run(tool: Tool, live: RunFactory) -> None:
    said = tool("tensorboard", live.run.root, "--status", "--json")
    assert (said.code, json.loads(said.data)) == (1, {"schema": 1, "running": False})
    check("`tensorboard --stop`", tool("tensorboard", live.run.root, "--stop", "--json").json)
