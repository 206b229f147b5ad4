"""The commands that ask a trainer: save, restore, pause, resume, stop."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from answering_trainer import AnsweringTrainer, done, final, working_for_ever
from rundir_factory import RunFactory, two_branches

from command_running import Tool
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(capsys)


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
    assert said.words.startswith("tfckpt-tui: No trainer answers")
    assert not (tmp_path / ".tfckpt").exists()


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
        "Restoring ckpt-300. Training goes back 138 steps and continues on new branch 2."
        in said.words
    )
    assert [(c.kind, c.arguments) for c in trainer.taken] == [
        (CommandKind.RESTORE, {"name": "ckpt-300"})
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


def test_stop_by_force_where_nothing_runs(tool: Tool, tmp_path: Path) -> None:
    RunFactory(tmp_path).checkpoint(1, recorded=False)
    said = tool("stop", tmp_path, "--force")
    assert said.code == 3
    assert "there is nothing to stop" in said.words
