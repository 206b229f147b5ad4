"""The reference of commands and JSON matches the program."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import jsonschema
import pytest
from answering_trainer import AnsweringTrainer, done
from json_reference import check, checked
from rundir_factory import RunFactory, two_branches

from command_running import Tool
from documentation import DOCS, load_tool
from tfckpt_trainer.errors import ExitCode, TfckptError
from tfckpt_tui.cli.schema import reports_by_command
from tfckpt_tui.reports.base import ErrorReport, Report
from tfckpt_tui.reports.control import (
    CommandReport,
    ForcedStopReport,
    LaunchReport,
    QuickCheckReport,
    StoppedTensorBoardReport,
)
from tfckpt_tui.reports.listing import ListReport
from tfckpt_tui.reports.logs import JournalReport, LogsReport
from tfckpt_tui.reports.retention import (
    EmptiedReport,
    PinReport,
    PruneReport,
    TrashReport,
    UndoReport,
)
from tfckpt_tui.reports.run_facts import StatusReport


def test_the_generated_pages_match_the_definitions() -> None:
    for page, text in load_tool("make_reference").pages().items():
        assert page.read_text() == text, "run `python docs/tools/make_reference.py`"


def test_every_option_has_a_description() -> None:
    reference = (DOCS / "reference" / "commands.md").read_text()
    assert re.findall(r"^\| `-.*\|  ?(?:Default.*)?\|$", reference, re.MULTILINE) == []


def test_every_command_with_json_says_what_it_prints() -> None:
    assert [name for name, reports in reports_by_command().items() if not reports] == []


def test_every_document_is_checked() -> None:
    printed = {report.__name__ for reports in reports_by_command().values() for report in reports}
    missing = sorted((printed | {"ErrorReport"}) - checked())
    assert missing == [], "Call `check` with the record in a test."


def test_a_check_names_the_fields_that_differ() -> None:
    document = {"schema": 1, "error": {"code": 2, "nam": "usage", "message": "No run."}}
    with pytest.raises(jsonschema.ValidationError, match="'name' is a required property"):
        check(ErrorReport, document)
    document["error"] = {"code": 2, "name": "usage", "message": "No run.", "hint": ""}
    with pytest.raises(AssertionError, match="hint"):
        check(ErrorReport, document)


@pytest.mark.parametrize("document", ["json.md", "commands.md"])
def test_every_exit_code_is_documented(document: str) -> None:
    text = (DOCS / "reference" / document).read_text()
    if document == "commands.md":
        listed = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
        assert listed == {int(code) for code in ExitCode}
    else:
        words = set(re.findall(r"`(\w+)`", text.partition("| `error.name` |")[2].splitlines()[0]))
        reported = {kind.exit_code for kind in (TfckptError, *TfckptError.__subclasses__())}
        reported |= {ExitCode.INTERRUPTED, ExitCode.PREEMPTED}
        assert words == {code.name.lower() for code in reported}


@pytest.fixture
def live(tmp_path: Path) -> RunFactory:
    made = two_branches(tmp_path / "run", live=True)
    made.run.worker_log(0).write_text("hello\n")
    return made


@pytest.mark.parametrize(
    ("command", "report"),
    [
        ("status", StatusReport),
        ("ls", ListReport),
        ("journal", JournalReport),
        ("logs", LogsReport),
    ],
)
def test_json_of_status_commands(
    tool: Tool, live: RunFactory, command: str, report: type[Report]
) -> None:
    check(report, tool(command, live.run.root, "--json").json)


@pytest.mark.parametrize(("command", "report"), [("status", StatusReport), ("ls", ListReport)])
def test_json_of_status_commands_with_little_data(
    tool: Tool, tmp_path: Path, command: str, report: type[Report]
) -> None:
    made = RunFactory(tmp_path)
    made.checkpoint(1, name="model", recorded=False)
    unknown = ("loss", "step_seconds", "step_seconds_p95", "input_wait_seconds")
    unknown += ("examples_per_second", "cpu_percent", "memory_bytes")
    made.run.create()
    made.live_worker(0, **dict.fromkeys(unknown))
    (tmp_path / "best.keras").write_bytes(b"x")
    check(report, tool(command, tmp_path, "--json").json)


@pytest.mark.parametrize("words", [["save"], ["restore", "--step", "300"], ["pause"], ["stop"]])
def test_json_of_control_commands(tool: Tool, live: RunFactory, words: list[str]) -> None:
    with AnsweringTrainer(live.run, done("Done.")):
        said = tool(words[0], live.run.root, *words[1:], "--json")
    check(CommandReport, said.json)


def test_json_of_prune_commands(tool: Tool, live: RunFactory) -> None:
    root = live.run.root
    for index in range(2):
        live.run.worker_status(index).unlink()
    check(PinReport, tool("pin", root, "ckpt-100", "--json").json)
    rules = ["--keep-last", "1", "--json"]
    check(PruneReport, tool("prune", root, *rules, "--dry-run").json)
    check(PruneReport, tool("prune", root, *rules, "--yes").json)
    check(TrashReport, tool("trash", root, "--json").json)
    check(UndoReport, tool("undo", root, "--json").json)
    check(EmptiedReport, tool("trash", root, "empty", "--yes", "--json").json)


@pytest.mark.e2e
def test_json_of_a_launch_and_of_a_stop_by_force(tool: Tool, tmp_path: Path) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(300)"]
    try:
        said = tool("launch", tmp_path / "run", "--detach", "--json", "--", *sleep)
    finally:
        stopped = tool("stop", tmp_path / "run", "--force", "--json")
    check(LaunchReport, said.json)
    check(ForcedStopReport, stopped.json)


def test_json_of_a_command_that_is_not_waited_for(tool: Tool, live: RunFactory) -> None:
    said = tool("pause", live.run.root, "--no-wait", "--json")
    check(CommandReport, said.json)


def test_json_of_errors(tool: Tool, tmp_path: Path) -> None:
    check(ErrorReport, tool("ls", tmp_path, "--json").json)


def test_json_of_tensorboard_that_does_not_run(tool: Tool, live: RunFactory) -> None:
    said = tool("tensorboard", live.run.root, "--status", "--json")
    assert (said.code, json.loads(said.data)) == (1, {"schema": 1, "running": False})
    check(StoppedTensorBoardReport, tool("tensorboard", live.run.root, "--stop", "--json").json)


def test_the_schema_of_a_command_is_what_it_prints(tool: Tool, live: RunFactory) -> None:
    schema = tool("schema", "ls").json
    jsonschema.Draft202012Validator.check_schema(schema)
    document = tool("ls", live.run.root, "--json").json
    jsonschema.validate(document, schema)
    jsonschema.validate(tool("ls", live.run.root / "gone", "--json").json, schema)
    del document["checkpoints"][0]["state"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema)
    state = schema["$defs"]["ListedCheckpoint"]["properties"]["state"]
    assert "can be restored" in state["description"]


@pytest.mark.e2e
def test_the_schema_of_all_commands(tool: Tool) -> None:
    schemas = tool("schema").json
    assert list(schemas) == list(reports_by_command())
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_a_command_without_json_has_no_schema(tool: Tool) -> None:
    said = tool("schema", "attach")
    assert said.code == 2
    assert "'attach' is no command with --json. There are: demo, launch, runs" in said.words


def test_json_of_a_quick_check(tool: Tool, live: RunFactory) -> None:
    live.live_worker(0)
    with AnsweringTrainer(live.run, done("Exact.", exact=True)):
        said = tool("check", "--quick", "--yes", "--json", live.run.root)
    assert said.code == 0
    check(QuickCheckReport, said.json)
