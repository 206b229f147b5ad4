"""Asking a live trainer: the real command box, its other side played by a thread."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from answering_trainer import AnsweringTrainer, done, final, working_for_ever
from rundir_factory import RunFactory, two_branches

from tfckpt_trainer.errors import ExitCode, NoTrainerError, RefusedError, TfckptError
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.records.command import (
    Command,
    CommandKind,
    CommandState,
    PauseArguments,
    SaveArguments,
)
from tfckpt_trainer.rundir.records.worker import Activity, Ending
from tfckpt_tui.services.control.request import FrontEnd, ask


@pytest.fixture
def live(tmp_path: Path) -> RunFactory:
    return two_branches(tmp_path / "run", live=True)


def test_the_outcome_comes_back_with_every_state_on_the_way(live: RunFactory) -> None:
    seen: list[Command] = []
    with AnsweringTrainer(live.run, done("Saved ckpt-b1-438.", name="ckpt-b1-438")) as trainer:
        command = ask(
            live.run, SaveArguments(), through=FrontEnd.COMMAND_LINE, on_change=seen.append
        )
    assert (command.state, command.result) == (CommandState.DONE, {"name": "ckpt-b1-438"})
    assert seen[-1] == command
    assert [c.kind for c in trainer.taken] == [CommandKind.SAVE]
    assert trainer.taken[0].requested_by.endswith(", command line")
    assert [t.state for t in command.history] == [
        CommandState.REQUESTED,
        CommandState.SEEN,
        CommandState.AGREED,
        CommandState.WORKING,
        CommandState.DONE,
    ]


@pytest.mark.parametrize(
    ("state", "error", "code"),
    [
        (CommandState.REFUSED, RefusedError, ExitCode.REFUSED),
        (CommandState.FAILED, TfckptError, ExitCode.PROBLEM),
    ],
)
def test_what_the_trainer_says_is_what_the_person_reads(
    live: RunFactory, state: CommandState, error: type[TfckptError], code: ExitCode
) -> None:
    said = "Not enough disk: 3.10 GB needed, 1.20 GB free."
    with AnsweringTrainer(live.run, final(state, said)), pytest.raises(error) as caught:
        ask(live.run, SaveArguments(), through=FrontEnd.COMMAND_LINE)
    assert said in str(caught.value)
    assert caught.value.exit_code == code


def test_a_command_of_a_trainer_that_ended_is_waited_for_no_longer(live: RunFactory) -> None:
    def end(command: Command) -> None:
        if command.state is CommandState.WORKING:
            for index in range(2):
                live.worker(index, activity=Activity.EXITED, ending=Ending.FAILED)

    with (
        AnsweringTrainer(live.run, working_for_ever),
        pytest.raises(TfckptError, match="ended before it answered, so save may be done or not"),
    ):
        ask(live.run, SaveArguments(), through=FrontEnd.COMMAND_LINE, on_change=end)


def test_without_a_trainer_nothing_is_asked(tmp_path: Path) -> None:
    run = two_branches(tmp_path).run
    for index in range(2):
        run.worker_status(index).unlink()
    with pytest.raises(NoTrainerError, match="tfckpt-tui launch"):
        ask(run, SaveArguments(), through=FrontEnd.COMMAND_LINE)
    assert CommandQueue(run).pending() == []


def test_what_nobody_takes_in_time_is_never_carried_out(live: RunFactory) -> None:
    with pytest.raises(NoTrainerError, match="will not be carried out"):
        ask(live.run, SaveArguments(), through=FrontEnd.COMMAND_LINE, timeout=0.2)
    assert CommandQueue(live.run).claim(time.time()) is None


def test_what_takes_too_long_tells_where_it_is(live: RunFactory) -> None:
    with (
        AnsweringTrainer(live.run, working_for_ever),
        pytest.raises(TfckptError, match=r"not done within 0\.5 s.*Writing shard 1 of 2"),
    ):
        ask(live.run, SaveArguments(), through=FrontEnd.COMMAND_LINE, timeout=0.5)


def test_without_waiting_the_command_is_on_its_way(live: RunFactory) -> None:
    command = ask(live.run, PauseArguments(), through=FrontEnd.COMMAND_LINE, wait=False)
    assert command.state is CommandState.REQUESTED
    assert [c.id for c in CommandQueue(live.run).pending()] == [command.id]
