"""Requests to many runs: the plan names what follows for each, and each gives its own answer."""

from __future__ import annotations

import os
import shlex
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from answering_trainer import AnsweringTrainer, done, final, moving_files
from app_driving import top, until, until_jobs_are_shown, until_screen, until_shown
from rundir_factory import HYPERPARAMETERS, RunFactory

from tfckpt_trainer.catalog.retention.policy import Policy
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandState
from tfckpt_trainer.rundir.records.worker import Activity
from tfckpt_tui.app.runs_app import RunsApp
from tfckpt_tui.app.screens.logs import LogsScreen
from tfckpt_tui.services.control import many
from tfckpt_tui.services.control.force_stop import ForceStopPlan
from tfckpt_tui.services.control.many import (
    ManyPlan,
    RunAnswer,
    RunOutcome,
    RunPlan,
    carry_out,
    first_answers,
    make_plan,
    plan_end,
    plan_pause,
    plan_prune,
    plan_resume,
    plan_save,
    plan_set,
    plan_stop,
)
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.settings.config import Config
from tfckpt_tui.settings.own_actions import ActionSection, ActsOn
from waiting import MOST_SECONDS, wait_until


def live(root: Path, **changes: object) -> RunFactory:
    made = RunFactory(root).create(worker_count=1, total_steps=1000)
    made.checkpoint(100, seconds_ago=60)
    made.checkpoint(200, seconds_ago=30)
    made.checkpoint(300)
    made.live_worker(0, step=320, **changes)
    return made


@pytest.fixture
def fleet(tmp_path: Path) -> dict[str, RunFactory]:
    """Two runs that answer, a paused one, and one that has ended."""
    root = tmp_path / "fleet"
    made = {name: live(root / name) for name in ("first", "second")}
    made["paused"] = live(root / "paused", activity=Activity.PAUSED)
    ended = RunFactory(root / "ended", time.time() - 7200).create(worker_count=1)
    ended.checkpoint(50)
    ended.worker(0, activity=Activity.EXITED, step=50, total_steps=50, detail="")
    return {**made, "ended": ended}


def roots(fleet: dict[str, RunFactory]) -> list[Path]:
    return [made.run.root for made in fleet.values()]


def by_name(made: ManyPlan) -> dict[str, RunPlan]:
    return {run.root.name: run for run in made.runs}


def answers_of(made: ManyPlan) -> dict[str, RunAnswer]:
    """Carries it out; the answer of each run."""
    answers: dict[str, RunAnswer] = {}
    carry_out(made, lambda answer: answers.__setitem__(answer.root.name, answer))
    wait_until(lambda: len(answers) == len(made.possible), 60, "all answers")
    return answers


def test_a_plan_says_what_follows_for_each_run_and_why_others_cannot(
    fleet: dict[str, RunFactory],
) -> None:
    plan = make_plan("Save", roots(fleet), plan_save)
    assert plan.words.startswith("Save on 3 of 4 runs; 1 cannot: 1 ")
    found = by_name(plan)
    assert found["first"].words == "Saves a checkpoint on 1 worker after step 320."
    assert found["ended"].act is None
    assert str(fleet["ended"].run.root) not in found["ended"].words.partition("`")[0]
    pause = make_plan("Pause", roots(fleet), plan_pause)
    assert by_name(pause)["paused"].words == "Training is paused already."
    resume = make_plan("Resume", roots(fleet), plan_resume)
    assert [run.root.name for run in resume.possible] == ["paused"]


def test_each_run_answers_for_itself(fleet: dict[str, RunFactory]) -> None:
    with ExitStack() as stack:
        refuse = final(CommandState.REFUSED, "A save is in progress.")
        for name, answer in (("first", done("Saved ckpt-320.")), ("second", refuse)):
            stack.enter_context(AnsweringTrainer(fleet[name].run, answer))
        plan = make_plan("Save", [fleet[name].run.root for name in ("first", "second")], plan_save)
        answers = answers_of(plan)
    assert answers["first"].outcome is RunOutcome.DONE
    assert answers["first"].words == "Saved ckpt-320."
    assert answers["second"].outcome is RunOutcome.FAILED
    assert answers["second"].words == "A save is in progress."


def test_a_stop_saves_first(fleet: dict[str, RunFactory]) -> None:
    with AnsweringTrainer(fleet["first"].run, done("Stopped.")) as trainer:
        answers = answers_of(make_plan("Stop", [fleet["first"].run.root], plan_stop))
    assert [command.arguments["save"] for command in trainer.taken] == [True]
    assert answers["first"].outcome is RunOutcome.DONE


def test_a_change_is_possible_only_where_there_is_such_a_hyperparameter(
    fleet: dict[str, RunFactory],
) -> None:
    fleet["first"].tells(*HYPERPARAMETERS)
    plan = make_plan("Change", roots(fleet), partial(plan_set, values={"learning_rate": 1e-4}))
    found = by_name(plan)
    assert found["first"].words.startswith("learning_rate 0.0003 → 0.0001 on 1 worker")
    assert found["second"].act is None
    assert found["second"].reason == "refused"


def test_a_prune_follows_the_rules_with_a_trainer_and_without(fleet: dict[str, RunFactory]) -> None:
    for step in (10, 20):
        fleet["ended"].checkpoint(step, seconds_ago=1000 - step)
    planner = partial(plan_prune, given=Policy(keep_last=1), config=Config())
    chosen = [fleet[name].run.root for name in ("first", "ended")]
    with AnsweringTrainer(fleet["first"].run, moving_files(fleet["first"].run)):
        plan = make_plan("Prune", chosen, planner)
        assert "2 of 3 checkpoints" in by_name(plan)["first"].words
        answers = answers_of(plan)
    assert {answer.outcome for answer in answers.values()} == {RunOutcome.DONE}
    left = [path.stem for path in fleet["first"].run.root.glob("*.index")]
    assert left == ["ckpt-300"]
    again = make_plan("Prune", [fleet["first"].run.root], planner)
    assert by_name(again)["first"].words == "The rules keep all 1 checkpoint."
    none = make_plan("Prune", chosen, partial(plan_prune, given=Policy(), config=Config()))
    assert none.possible == ()


def test_a_directory_that_is_gone_linked_or_read_only_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, linked = live(tmp_path / "run"), live(tmp_path / "linked")
    (linked.run.control).rename(tmp_path / "elsewhere")
    linked.run.control.symlink_to(tmp_path / "elsewhere")
    gone = tmp_path / "gone"
    monkeypatch.setattr(os, "access", lambda path, mode: made.run.root not in Path(path).parents)
    found = by_name(make_plan("Save", [made.run.root, linked.run.root, gone], plan_save))
    assert [run.act for run in found.values()] == [None, None, None]
    assert found["run"].reason == "read-only"
    assert not gone.exists()


def test_a_directory_that_hangs_keeps_no_plan_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many, "PLAN_SECONDS", 2.0)
    goes_on = threading.Event()

    def planner(run: RunDirectory) -> RunPlan:
        if run.root.name == "hung":
            goes_on.wait(MOST_SECONDS)
        return RunPlan(run.root, "Saves.", lambda: "Saved.")

    for name in ("hung", "run"):
        RunFactory(tmp_path / name).create()
    try:
        plan = make_plan("Save", [tmp_path / "hung", tmp_path / "run"], planner)
        assert plan.words == "Save on 1 of 2 runs; 1 cannot: 1 no answer."
        outcomes = [answer.outcome for answer in first_answers(plan)]
        assert outcomes == [RunOutcome.LEFT_OUT, RunOutcome.WAITING]
    finally:
        goes_on.set()


# -- in the app ------------------------------------------------------------------------------------


@pytest.fixture
def trainers(fleet: dict[str, RunFactory]) -> Iterator[dict[str, AnsweringTrainer]]:
    with ExitStack() as stack:
        refuse = final(CommandState.REFUSED, "A save is in progress.")
        yield {
            name: stack.enter_context(AnsweringTrainer(fleet[name].run, answer))
            for name, answer in (("first", done("Saved ckpt-320.")), ("second", refuse))
        }


async def test_no_key_acts_on_a_neighbour_of_a_marked_run_that_is_gone(
    fleet: dict[str, RunFactory], tmp_path: Path
) -> None:
    root = fleet["first"].run.root
    app = RunsApp(root.parent, Config())
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until_shown(pilot, "4 runs")
        app.runs._marks.toggle(next(run for run in app.runs.rows if run.root == root))
        root.rename(tmp_path / "elsewhere")
        await until_shown(pilot, "3 runs")
        await pilot.press("p")
        await until_shown(pilot, "The marked runs")
        assert len(app.screen_stack) == 1
        await pilot.press("escape", "p")
        await until(pilot, lambda: len(app.screen_stack) == 2, "it is of the selected one")
        await pilot.press("escape")


async def test_marked_runs_are_saved_after_one_question_and_answer_each(
    fleet: dict[str, RunFactory], trainers: dict[str, AnsweringTrainer]
) -> None:
    app = RunsApp(fleet["first"].run.root.parent, Config())
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until_shown(pilot, "4 runs")
        await pilot.press("slash", *"st", "enter")
        await pilot.press("escape", "slash", *"fleet/", "enter", "M")
        await until_shown(pilot, "4 marked")
        await pilot.press("s")
        await until_shown(pilot, "Save on 3 of 4 runs; 1 cannot")
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1, "the question is gone")
        assert not any(trainer.taken for trainer in trainers.values())
        await pilot.press("M")
        await pilot.press("g", "space", "k", "j")
        await until_shown(pilot, "1 marked")
        for run in app.runs.rows:
            if (run.root.name in trainers) != (run.root in [m.root for m in app.runs.marked]):
                app.runs._marks.toggle(run)
        await pilot.press("s", "x")
        await until_shown(pilot, "Save on 2 runs.")
        await pilot.press("y")
        await until_shown(pilot, "✗ 1 failed · ✓ 1 done")
        assert "A save is in progress." in top(app)
        await pilot.press("x", "space")
        await until(pilot, lambda: len(app.screen_stack) == 2, "other keys do nothing here")
        await pilot.press("y")
        await until_shown(pilot, "Sent 2 answers to the clipboard")
        assert "failed\tA save is in progress." in app.clipboard
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1, "back in the list")
    assert [len(trainer.taken) for trainer in trainers.values()] == [1, 1]


async def test_an_answer_that_comes_after_the_page_was_left_is_not_lost(
    fleet: dict[str, RunFactory],
) -> None:
    goes_on = threading.Event()
    root = fleet["first"].run.root

    def act() -> str:
        goes_on.wait(MOST_SECONDS)
        raise PermissionError(13, "Permission denied", str(root))

    app = RunsApp(root.parent, Config())
    async with app.run_test(size=(100, 24)) as pilot:
        await until_shown(pilot, "4 runs")
        app._plan("Save", lambda run: RunPlan(run.root, "Saves.", act))
        await until_shown(pilot, "Save on 1 run.")
        await pilot.press("y")
        await until_shown(pilot, "1 waiting")
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1, "back in the list")
        goes_on.set()
        await until_shown(pilot, "Permission denied")
        await pilot.press("escape")
        await until(pilot, lambda: "Permission denied" not in top(app), "it was read")


async def test_a_prune_asks_how_many_stay_and_a_change_for_a_value(
    fleet: dict[str, RunFactory],
) -> None:
    fleet["first"].tells(*HYPERPARAMETERS)
    app = RunsApp(fleet["first"].run.root, Config())
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "1 run")
        await pilot.press("p", *"0", "enter")
        await until_shown(pilot, "✗ ")
        await pilot.press("backspace", *"1", "enter")
        await until_shown(pilot, "2 of 3 checkpoints")
        await pilot.press("escape")
        await pilot.press("H", *"learning_rate", "enter")
        await until_shown(pilot, "has no =")
        await pilot.press("equals_sign", *"1e-4", "enter")
        await until_shown(pilot, "learning_rate 0.0003 → 0.0001")
        await pilot.press("escape")


async def test_nothing_changes_in_a_list_that_is_read_only(fleet: dict[str, RunFactory]) -> None:
    app = RunsApp(fleet["first"].run.root.parent, Config(), read_only=True)
    async with app.run_test(size=(100, 24), notifications=True) as pilot:
        await until_shown(pilot, "4 runs")
        for key in "szxpH":
            await pilot.press(key)
            await until_shown(pilot, "Not now: change")
            app.clear_notifications()
        await until_jobs_are_shown(pilot)
        assert len(app.screen_stack) == 1


async def test_the_list_is_as_it_was_when_a_run_returns_to_it(
    fleet: dict[str, RunFactory],
) -> None:
    app = RunsApp(fleet["first"].run.root.parent, Config())
    async with app.run_test(size=(100, 24)) as pilot:
        await until_shown(pilot, "4 runs")
        await pilot.press("greater_than_sign", "slash", *"fleet", "enter", "M", "end", "enter")
        await until(pilot, lambda: app.return_value is not None, "the end of the list")
        chosen, marked = app.runs.selected, app.runs.marked
        assert chosen is not None
    again = RunsApp(fleet["first"].run.root.parent, Config(), before=app)
    async with again.run_test(size=(100, 24)) as pilot:
        await until_shown(pilot, "4 of 4 match")
        assert "state ▲" in top(again)
        assert [run.root for run in again.runs.chosen] == [run.root for run in marked]
        assert again.runs.row_key(again.runs.cursor) == str(chosen.root)
        await pilot.press("escape")
        await until_shown(pilot, "4 marked")


async def test_a_directory_that_vanished_is_said_and_the_list_stays(
    fleet: dict[str, RunFactory], tmp_path: Path
) -> None:
    app = RunsApp(fleet["first"].run.root.parent, Config())
    async with app.run_test(size=(100, 24)) as pilot:
        await until_shown(pilot, "4 runs")
        selected = app.runs.selected
        assert selected is not None
        selected.root.rename(tmp_path / "elsewhere")
        await pilot.press("enter")
        await until_shown(pilot, "does not exist")
        assert app.return_value is None


async def test_the_list_has_the_keys_of_the_dashboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = RunFactory(tmp_path / "fleet" / "hangs").create(worker_count=1)
    made.live_worker(0)
    made.run.logs_directory.mkdir(exist_ok=True)
    made.run.worker_log(0).write_text("it hangs here\n")
    ended = []

    def end(run: RunDirectory, plan: ForceStopPlan, *, through: FrontEnd) -> tuple[str, list[str]]:
        ended.append((run.root, plan))
        return "Ended all processes of the run.", []

    plan = ForceStopPlan(None, ("worker 0 (process 17)",))
    monkeypatch.setattr(many, "plan_force_stop", lambda run: plan)
    monkeypatch.setattr(many, "force_stop", end)
    app = RunsApp(tmp_path / "fleet", Config())
    async with app.run_test(size=(100, 24), notifications=True) as pilot:
        await until_shown(pilot, "1 training")
        await pilot.press("y")
        await until(pilot, lambda: app.clipboard == str(made.run.root), "the path")
        await pilot.press("l")
        await until_shown(pilot, "it hangs here")
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1, "the list")
        await pilot.press("X")
        await until_shown(pilot, "kills after 1 min: worker 0 (process 17).")
        assert not ended
        await pilot.press("y")
        await until_shown(pilot, "Ended all processes of the run.")
        assert ended == [(made.run.root, plan)]
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1, "the list again")
        await pilot.press("ctrl+p", *"logs")
        await until_shown(pilot, "Shows the logs of the selected run.")
        await pilot.press("enter")
        await until_screen(pilot, LogsScreen)


def test_a_run_without_processes_has_none_to_end(tmp_path: Path) -> None:
    made = RunFactory(tmp_path / "run").create()
    (planned,) = make_plan("Force stop", [made.run.root], plan_end).runs
    assert planned.act is None
    assert "there is nothing to stop" in planned.words


async def test_own_actions_on_runs_have_their_keys_in_the_list(tmp_path: Path) -> None:
    for name in ("first", "second"):
        RunFactory(tmp_path / "fleet" / name).create(worker_count=1)
    script = "import sys; run = sys.argv[1]; open(run + '/told', 'w'); sys.exit(run[-1] == 'd')"
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(script)} {{run}}"
    own = {
        "tell": ActionSection(command=command, key="F", on=ActsOn.RUN, title="Tell the group"),
        "other": ActionSection(command="true", key="N"),
    }
    app = RunsApp(tmp_path / "fleet", Config(actions=own))
    async with app.run_test(size=(120, 24), notifications=True) as pilot:
        await until_shown(pilot, "2 runs")
        await pilot.press("question_mark")
        await until_shown(pilot, "Keys of the list of runs")
        await pilot.press("end")
        await until_shown(pilot, "Tell the group.")
        await pilot.press("escape", "N", "M", "F")
        await until_shown(pilot, "tell on 2 runs.")
        await pilot.press("y")
        await until_shown(pilot, "✗ 1 failed · ✓ 1 done")
    assert all((tmp_path / "fleet" / name / "told").exists() for name in ("first", "second"))
