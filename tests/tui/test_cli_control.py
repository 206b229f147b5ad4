"""The commands that ask a trainer: save, restore, pause, resume, stop."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from answering_trainer import AnsweringTrainer, done, final, working_for_ever
from json_reference import check
from rundir_factory import RunFactory, two_branches

from bundle_writing import write_floats
from command_running import Tool
from tfckpt_trainer.catalog.directory.history import resume_point
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.slurm_options import SlurmOptions
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, Derivation, SourceFacts
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.worker import Activity, Ending
from tfckpt_trainer.rundir.storage.documents import load, store
from tfckpt_tui.cli.run import stop
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from tfckpt_tui.reports.control import NextStartReport
from tfckpt_tui.services.control.force_stop import ForceStopPlan


@pytest.fixture
def live(tmp_path: Path) -> RunFactory:
    return two_branches(tmp_path / "run", live=True)


def test_save_waits_for_the_outcome(tool: Tool, live: RunFactory) -> None:
    with AnsweringTrainer(live.run, done("Saved ckpt-b1-438.", name="ckpt-b1-438")):
        said = tool("save", live.run.root)
    assert (said.code, said.data) == (0, "Saved ckpt-b1-438.\n")


def test_save_in_json_tells_all_of_the_command(tool: Tool, live: RunFactory) -> None:
    with AnsweringTrainer(live.run, done("Saved ckpt-b1-438.", name="ckpt-b1-438")):
        command = tool("save", live.run.root, "--json").json["command"]
    assert command["state"] == "done"
    assert command["result"] == {"name": "ckpt-b1-438"}
    assert (command["seen_by"], command["worker_count"], command["step"]) == ([0, 1], 2, 438)
    states = [moment["state"] for moment in command["history"]]
    assert states == ["requested", "seen", "agreed", "working", "done"]


@pytest.mark.parametrize(("state", "code"), [(CommandState.REFUSED, 4), (CommandState.FAILED, 1)])
def test_what_did_not_happen_has_its_exit_code(
    tool: Tool, live: RunFactory, state: CommandState, code: int
) -> None:
    with AnsweringTrainer(live.run, final(state, "Not enough disk: 3 GB needed, 1 GB free.")):
        said = tool("save", live.run.root, "--json")
    assert said.code == said.json["error"]["code"] == code
    assert "Not enough disk: 3 GB needed, 1 GB free." in said.json["error"]["message"]


@pytest.mark.parametrize("command", ["save", "pause", "resume", "stop"])
def test_without_a_trainer_the_exit_code_is_3(tool: Tool, tmp_path: Path, command: str) -> None:
    RunFactory(tmp_path).checkpoint(1, recorded=False)
    said = tool(command, tmp_path)
    assert said.code == 3
    starts = dict.fromkeys(("pause", "stop"), f"No trainer runs in {tmp_path}, so there is")
    assert said.words.startswith(f"tfckpt-tui: {starts.get(command, 'No trainer answers')}")
    assert not (tmp_path / ".tfckpt").exists()


@pytest.mark.parametrize("command", ["pause", "save", "stop"])
@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (Ending.FINISHED, "has finished"),
        (Ending.STOPPED, "was stopped before"),
        (Ending.FAILED, "has failed"),
    ],
)
def test_a_run_that_has_ended_has_nothing_to_stop(
    tool: Tool, tmp_path: Path, command: str, ending: Ending, words: str
) -> None:
    made = RunFactory(tmp_path).create()
    made.worker(0, activity=Activity.EXITED, ending=ending)
    said = tool(command, tmp_path, "--json")
    assert said.code == said.json["error"]["code"] == 3
    assert said.json["error"]["message"] == (
        f"The run in {tmp_path} {words}, so there is nothing to {command}. See the state of the "
        f"run with `tfckpt-tui status {tmp_path}`."
    )


def test_a_trainer_that_does_not_take_it_is_no_trainer(tool: Tool, live: RunFactory) -> None:
    said = tool("save", live.run.root, "--timeout", "0.3")
    assert said.code == 3
    assert "never" in said.words or "not be carried out" in said.words
    assert CommandQueue(live.run).claim(time.time()) is None


def test_a_trainer_that_does_not_finish_in_time(tool: Tool, live: RunFactory) -> None:
    with AnsweringTrainer(live.run, working_for_ever):
        said = tool("save", live.run.root, "--timeout", "0.5")
    assert said.code == 1
    assert "it is working: Writing shard 1 of 2." in said.words


def test_no_wait_leaves_the_command_in_the_box(tool: Tool, live: RunFactory) -> None:
    said = tool("pause", live.run.root, "--no-wait", "--json")
    assert said.code == 0
    assert said.json["command"]["state"] == "requested"
    pending = CommandQueue(live.run).pending()
    assert [c.id for c in pending] == [said.json["command"]["id"]]


def test_restore_by_step_asks_for_the_checkpoint_and_tells_the_price(
    tool: Tool, live: RunFactory
) -> None:
    with AnsweringTrainer(live.run, done("At ckpt-300 on branch 2.")) as trainer:
        said = tool("restore", live.run.root, "--step", "300")
    assert (said.code, said.data) == (0, "At ckpt-300 on branch 2.\n")
    assert (
        "Restoring ckpt-300. Training goes back 138 steps from step 438 and continues on new "
        "branch 2." in said.words
    )
    assert [(c.kind, c.arguments) for c in trainer.taken] == [
        (CommandKind.RESTORE, {"name": "ckpt-300", "partial": False, "values": {}})
    ]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--step", "320"], 2, "near are: 100, 300, 400, 500"),
        (["--name", "ckpt-4"], 2, "the newest are: ckpt-b1-400"),
        (["--name", "ckpt-200"], 4, "ckpt-200 is incomplete and cannot be restored"),
        ([], 2, "Give either --step or --name"),
        (["--step", "300", "--name", "ckpt-300"], 2, "Give either --step or --name"),
        (["--step", "-1"], 2, "--step"),
        (["--step", "many"], 2, "not a valid integer"),
    ],
)
def test_a_restore_that_makes_no_sense_never_reaches_the_trainer(
    tool: Tool, live: RunFactory, words: list[str], code: int, message: str
) -> None:
    (live.run.root / "ckpt-200.data-00000-of-00001").unlink()
    said = tool("restore", live.run.root, *words)
    assert said.code == code
    assert message in said.words
    assert CommandQueue(live.run).pending() == []


@pytest.mark.parametrize(("option", "save"), [("--save", True), ("--no-save", False)])
def test_stop_with_and_without_saving(
    tool: Tool, live: RunFactory, option: str, save: bool
) -> None:
    with AnsweringTrainer(live.run, done("Stopped after step 438.")) as trainer:
        assert tool("stop", live.run.root, option).code == 0
    assert trainer.taken[0].arguments == {"save": save}


def test_stop_saves_unless_told_otherwise(tool: Tool, live: RunFactory) -> None:
    with AnsweringTrainer(live.run, done("Stopped after step 438.")) as trainer:
        tool("stop", live.run.root)
    assert trainer.taken[0].arguments == {"save": True}


def test_a_refused_stop_is_not_forced(tool: Tool, live: RunFactory) -> None:
    refusal = final(CommandState.REFUSED, "Not enough disk; training goes on.")
    with AnsweringTrainer(live.run, refusal):
        said = tool("stop", live.run.root, "--force")
    assert said.code == 4
    assert "Ending its processes" not in said.words


@pytest.mark.parametrize(
    ("option", "waits"), [("--save", [120.0, 60.0]), ("--no-save", [10.0, 10.0])]
)
def test_a_stop_by_force_waits_shortly_if_nothing_is_to_be_saved(
    tool: Tool, live: RunFactory, monkeypatch: pytest.MonkeyPatch, option: str, waits: list[float]
) -> None:
    waited: list[float] = []

    def send(*given: Any, **options: Any) -> None:
        waited.append(given[3])
        raise TfckptError("The trainer has not answered.")

    def force(*_: Any, seconds: float, **options: Any) -> tuple[str, tuple[str, ...]]:
        waited.append(seconds)
        return "Ended.", ()

    monkeypatch.setattr(stop, "send", send)
    monkeypatch.setattr(stop, "plan_force_stop", lambda run: ForceStopPlan(None))
    monkeypatch.setattr(stop, "force_stop", force)
    assert tool("stop", live.run.root, "--force", option).code == 0
    assert waited == waits


def test_what_lies_in_place_of_the_inbox_prevents_no_stop_by_force(
    tool: Tool, live: RunFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(live.run.inbox, ignore_errors=True)
    os.mkfifo(live.run.inbox)
    assert tool("stop", live.run.root).code == 1
    monkeypatch.setattr(stop, "plan_force_stop", lambda run: ForceStopPlan(None))
    monkeypatch.setattr(stop, "force_stop", lambda *_, **options: ("Ended.", ()))
    said = tool("stop", live.run.root, "--force")
    assert (said.code, said.data) == (0, "Ended.\n"), said.words
    assert f"{live.run.inbox}: " in said.words


def test_stop_by_force_where_nothing_runs(tool: Tool, tmp_path: Path) -> None:
    RunFactory(tmp_path).checkpoint(1, recorded=False)
    said = tool("stop", tmp_path, "--force")
    assert said.code == 3
    assert "there is nothing to stop" in said.words


# restore of a run that has ended


def test_a_restore_of_an_ended_run_says_how_to_start_from_the_checkpoint(
    tool: Tool, ended: RunFactory
) -> None:
    root = ended.run.root
    said = tool("restore", root, "--step", "300")
    assert said.code == 3
    assert (
        f"To start from ckpt-300, run `tfckpt-tui restore {root} --name ckpt-300 --next-start`, "
        f"and then `tfckpt-tui launch {root} -- COMMAND`."
    ) in said.words
    assert tool("restore", root, "--step", "301").code == 2
    before = resume_point(ended.run)
    said = tool("restore", root, "--name", "ckpt-300", "--next-start", "--yes")
    assert (said.code, said.data) == (
        0,
        "The next start restores ckpt-300 if it matches the model, on branch 2.\n",
    )
    assert said.words == f"Start it with `tfckpt-tui launch {root} -- COMMAND`.\n"
    resumed = resume_point(ended.run)
    assert resumed != before
    assert resumed is not None
    assert (resumed.checkpoint, resumed.branch) == ("ckpt-300", 2)
    said = tool("restore", root, "--step", "300", "--next-start", "--json")
    check(NextStartReport, said.json)


def test_a_start_from_a_checkpoint_that_does_not_match_is_warned_of(
    tool: Tool, ended: RunFactory
) -> None:
    root = ended.run.root
    ended.checkpoint(400, 1, name="small", seconds_ago=300)
    write_floats(root / "small", (1.0, 2.0, 3.0))
    made = Derivation(operation="edit", sources=[SourceFacts(name="ckpt-b1-400")])
    record = load(ended.run.record("small"), CheckpointRecord)
    store(ended.run.record("small"), msgspec.structs.replace(record, derived=made))
    for _ in range(2):
        said = tool("restore", root, "--name", "small", "--next-start")
        assert said.code == 0
        words = "small does not match ckpt-b1-400: v is 3 in the checkpoint and 2 in the model."
        assert words in said.words
        assert "the start is refused; choose ckpt-b1-400 instead." in said.words
    said = tool("restore", root, "--name", "small", "--next-start", "--json")
    check(NextStartReport, said.json)
    said = tool("restore", root, "--name", "ckpt-300", "--next-start")
    assert "does not match" not in said.words


def test_after_a_start_was_chosen_the_run_is_at_its_checkpoint(
    tool: Tool, ended: RunFactory
) -> None:
    root, now = ended.run.root, time.time()
    ended.worker(0, activity=Activity.EXITED, step=438, branch=1, updated_at=now - 60)
    os.utime(ended.run.worker_status(0), (now - 60, now - 60))
    before = tool("status", root, "--json").json["run"]
    assert (before["step"], before["branch"]) == (438, 1)
    assert tool("restore", root, "--name", "ckpt-300", "--next-start").code == 0
    after = tool("status", root, "--json").json["run"]
    assert (after["step"], after["branch"], after["checkpoint"]) == (300, 2, "ckpt-300")
    assert SnapshotReader(ended.run).read(now).step == 300


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "tfckpt-tui launch {root} -- python train.py '--name=a b'"),
        (
            {"workers": 2, "ports": (9001, 9002), "grace_seconds": 5.0, "standby": False},
            "tfckpt-tui launch {root} --workers 2 --grace-seconds 5 --ports 9001,9002 --no-standby "
            "-- python train.py '--name=a b'",
        ),
        (
            {"workers": 4, "slurm": SlurmOptions(nodes="2-4", arguments=("--mem=16G",))},
            "tfckpt-tui launch {root} --slurm --nodes 2-4 --sbatch-arg=--mem=16G "
            "-- python train.py '--name=a b'",
        ),
        (
            {"working_directory": "/my code"},
            "cd '/my code' && tfckpt-tui launch {root} -- python train.py '--name=a b'",
        ),
    ],
)
def test_the_last_launch_can_be_pasted(
    tool: Tool, ended: RunFactory, changes: dict[str, Any], words: str
) -> None:
    root = ended.run.root
    usual = {"command": ("python", "train.py", "--name=a b"), "working_directory": os.getcwd()}
    options = LaunchOptions(run_directory=str(root), **{**usual, **changes})
    store(ended.run.launch_file, options)
    said = tool("restore", root, "--step", "300")
    assert f"and then `{words.format(root=root)}`." in said.words


def test_a_start_is_not_chosen_while_a_trainer_runs(tool: Tool, live: RunFactory) -> None:
    said = tool("restore", live.run.root, "--step", "300", "--next-start")
    assert said.code == 4
    assert "restore the checkpoint in place" in said.words
    said = tool("restore", live.run.root, "--step", "300", "--next-start", "--partial")
    assert said.code == 2
