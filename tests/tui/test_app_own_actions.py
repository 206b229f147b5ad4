"""Users' own actions in the app: keys, palette, columns, and the page of their runs."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from app_driving import POLL, StillMonitor, opened, shown, top, until, until_screen, until_shown
from rundir_factory import RunFactory
from textual.pilot import Pilot

from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.screens.action_runs import ActionRunList, ActionRunsScreen, shown_lines
from tfckpt_tui.app.widgets.checkpoints.history import History
from tfckpt_tui.monitor.own_actions import MOST_RUNS, OUTPUT_BYTES, ActionQueue, ActionState
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from tfckpt_tui.services.checkpoints.look_up import list_checkpoints
from tfckpt_tui.settings.config import Config
from tfckpt_tui.settings.own_actions import ActionSection, ActsOn
from waiting import attempts, wait_until


def python(text: str) -> str:
    return shlex.join((sys.executable, "-c", f"import json, sys, time\n{text}"))


FOUND = python("print('said'); print(json.dumps({'accuracy': int(sys.argv[1]) / 1000}))")
EVALUATE = ActionSection(command=f"{FOUND} {{step}}", key="a", column="accuracy")
HANG = ActionSection(
    command=python("print('begun', flush=True); time.sleep(1000)"), key="b", on=ActsOn.RUN
)
FAIL = ActionSection(
    command=python("print('\\033[31m[/red] done'); sys.exit(3)"), key="F", on=ActsOn.RUN
)


@asynccontextmanager
async def acting(made: RunFactory, **actions: ActionSection) -> AsyncIterator[Pilot[int]]:
    snapshot = SnapshotReader(made.run).read(time.time())
    app = TfckptApp(made.run, monitor=StillMonitor(snapshot), config=Config(actions=actions))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until_shown(pilot, "ckpt-b1-400")
        yield pilot


async def open_page(pilot: Pilot[int]) -> None:
    await pilot.press("A")
    await until_screen(pilot, ActionRunsScreen)
    await pilot.pause()


async def test_a_key_runs_it_for_the_selected_checkpoint(live: RunFactory) -> None:
    async with acting(live, evaluate=EVALUATE) as pilot:
        await pilot.press("a")
        await until_shown(pilot, "evaluate ckpt-b1-400: accuracy 0.4000 in")
        await open_page(pilot)
        await until_shown(pilot, "said")
        assert "accuracy 0.4000" in top(pilot.app)
    assert list_checkpoints(live.run)[0].metrics["accuracy"] == 0.4


async def test_marked_ones_wait_for_each_other_or_are_taken_together(live: RunFactory) -> None:
    together = ActionSection(command="echo {paths}", key="b", on=ActsOn.MARKED)
    async with acting(live, evaluate=EVALUATE, all=together) as pilot:
        await pilot.press("space", "space", "a", "b")
        await open_page(pilot)
        await until(pilot, lambda: top(pilot.app).count("done") == 3, "three runs")
        queue: ActionQueue = pilot.app.own_actions  # type: ignore[attr-defined]
        assert sorted(len(run.names) for run in queue.runs) == [1, 1, 2]
        (together_run,) = (run for run in queue.runs if len(run.names) == 2)
        paths = [str(live.run.root / name) for name in together_run.names]
        assert queue.output(together_run.number)[1].decode().split() == paths


async def test_the_palette_and_the_help_have_it(live: RunFactory) -> None:
    section = ActionSection(command="true", title="Try it")
    async with acting(live, trial=section, evaluate=EVALUATE) as pilot:
        await pilot.press("colon", *"trial")
        await until_shown(pilot, "trial: Try it")
        await pilot.press("escape")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1, "the dashboard")
        await pilot.press("question_mark", "slash", *"evaluate")
        await until_shown(pilot, "Run evaluate")


async def test_a_failure_stays_until_it_is_dismissed(live: RunFactory) -> None:
    async with acting(live, fail=FAIL) as pilot:
        await pilot.press("F")
        await until_shown(pilot, "✗ fail: The command ended with status 3.")
        await open_page(pilot)
        await until_shown(pilot, "[/red] done")
        assert "[31m" not in top(pilot.app)
        await pilot.press("escape")
        await until(pilot, lambda: "✗ fail" not in top(pilot.app), "it is dismissed")


async def test_a_run_is_cancelled_and_one_that_waits_too(live: RunFactory) -> None:
    async with acting(live, hang=HANG, evaluate=EVALUATE) as pilot:
        await pilot.press("b", "a")
        await open_page(pilot)
        await until_shown(pilot, "1 waiting")
        await pilot.press("home", "x")
        await until(pilot, lambda: "waiting" not in top(pilot.app), "it is out of the queue")
        await pilot.press("down")
        await until_shown(pilot, "begun")
        await pilot.press("x")
        await until(pilot, lambda: top(pilot.app).count("cancelled") >= 2, "both are cancelled")
        assert "x cancel" not in top(pilot.app)


async def test_the_page_follows_what_runs_until_the_user_moves(live: RunFactory) -> None:
    async with acting(live, hang=HANG, evaluate=EVALUATE) as pilot:
        await pilot.press("a")
        await open_page(pilot)
        await until_shown(pilot, "said")
        await pilot.press("escape", "b")
        await open_page(pilot)
        await until_shown(pilot, "begun")
        # The clock ticks before the page is told of the move.
        screen = pilot.app.screen
        screen.query_one(ActionRunList).action_move(1)
        screen._update()  # type: ignore[attr-defined]
        await until_shown(pilot, "said")


async def test_closing_the_app_ends_what_runs(live: RunFactory) -> None:
    async with acting(live, hang=HANG) as pilot:
        await pilot.press("b")
        queue: ActionQueue = pilot.app.own_actions  # type: ignore[attr-defined]
        await until(pilot, lambda: queue.runs and queue.output(1)[1], "its output")
    (run,) = queue.runs
    assert run.state is ActionState.CANCELLED


async def test_without_a_checkpoint_it_says_why_not(tmp_path: Path) -> None:
    made = RunFactory(tmp_path / "run").create()
    app = TfckptApp(made.run, config=Config(actions={"evaluate": EVALUATE}), poll=POLL)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: app.snapshot, "the snapshot")
        await pilot.press("a")
        await until_shown(pilot, "There is no checkpoint yet.")


async def test_without_actions_the_page_says_how_to_have_some(live: RunFactory) -> None:
    async with opened(live.run) as pilot:
        await open_page(pilot)
        await until_shown(pilot, 'command = "tfckpt-tui inspect {run} {name} --stats"')


async def test_numbers_are_a_column_that_sorts(live: RunFactory) -> None:
    for name in ("ckpt-200", "ckpt-500"):
        store_accuracy(live, name)
    async with acting(live, evaluate=EVALUATE) as pilot:
        await until_shown(pilot, "accuracy")
        history = pilot.app.screen.query_one(History)
        heads = history.head_lines(history.inner_size[0])[0]
        assert "accuracy" in "".join(text for text, _ in heads.spans)
        for _ in attempts("sorted by accuracy"):
            if "accuracy ▼" in shown(pilot.app):
                break
            await pilot.press("greater_than_sign")
            await pilot.pause()
        rows = [row.name for row in history.rows]
        assert rows[:2] == ["ckpt-500", "ckpt-200"]
        await pilot.press("slash", *"accuracy>0.3", "enter")
        await until(pilot, lambda: len(history.rows) == 1, "the filtered rows")


def store_accuracy(made: RunFactory, name: str) -> None:
    from tfckpt_tui.services.processes.own_actions import run_action

    (one,) = (one for one in list_checkpoints(made.run) if one.name == name)
    done = run_action(made.run, "evaluate", EVALUATE, [one], on_output=lambda data: None)
    assert done.problem == ""


@pytest.mark.parametrize("is_on", [True, False])
async def test_new_checkpoints_are_taken_one_at_a_time(live: RunFactory, is_on: bool) -> None:
    section = ActionSection(command=EVALUATE.command, column="accuracy", each_new=True)
    reader = SnapshotReader(live.run)
    monitor = StillMonitor(reader.read(time.time()))
    app = TfckptApp(live.run, monitor=monitor, config=Config(actions={"evaluate": section}))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until_shown(pilot, "ckpt-b1-400")
        await open_page(pilot)
        if not is_on:
            await pilot.press("n")
            await until_shown(pilot, "each_new is off")
        live.checkpoint(600, 1, "ckpt-b1-400")
        live.checkpoint(700, 1, "ckpt-b1-600")
        monitor.give(reader.read(time.time()))
        if is_on:
            await until(pilot, lambda: top(pilot.app).count("done") == 2, "both")
            assert len(app.own_actions.runs) == 2
        else:
            await pilot.pause()
            assert app.own_actions.runs == ()


def test_a_queue_keeps_the_end_of_a_huge_output_and_few_runs(live: RunFactory) -> None:
    ended = []
    queue = ActionQueue(live.run, ended.append)
    huge = ActionSection(command=python("print('x' * 5_000_000); print('end')"), on=ActsOn.RUN)
    queue.add("huge", huge, ())
    wait_until(lambda: ended, 30, "its end")
    dropped, output = queue.output(1)
    assert len(output) <= OUTPUT_BYTES
    assert (dropped + len(output), output[-4:]) == (5_000_005, b"end\n")
    assert queue.output(7) == (0, b"")
    true = ActionSection(command="true")
    hang = ActionSection(command="sleep 1000", on=ActsOn.RUN)
    queue.add("hang", hang, ())
    newest = list_checkpoints(live.run)[0]
    for number in range(MOST_RUNS + 20):
        queue.add(f"a{number}", true, (newest,))
    queue.add("a1", true, (newest,))
    assert len(queue.runs) == MOST_RUNS + 21
    queue.stop()
    assert all(run.state is not ActionState.RUNNING for run in queue.runs)


def test_output_is_shown_as_a_terminal_leaves_it() -> None:
    assert shown_lines(b"10%\r50%\r100%\r\nnext\n") == ["100%", "next"]
    assert shown_lines(b"\x1b[2J\xff\tx") == ["�   x"]
    assert shown_lines(b"") == []
    assert len(shown_lines(b"x" * 100_000)[0]) == 1000
    assert json.dumps(shown_lines(b"a\n\nb")) == '["a", "", "b"]'
