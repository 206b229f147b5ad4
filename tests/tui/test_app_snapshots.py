"""Pictures of the screens; nothing in them moves.

The screens that fill a terminal are shown at three sizes, the others at the smallest, where their
words are first cut off. A few are shown in the other themes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from app_driving import StillMonitor, top, until, until_jobs_are_shown
from msgspec.structs import replace
from rundir_factory import HYPERPARAMETERS, RunFactory, fail, stall, two_branches
from textual.pilot import Pilot
from tiny_trace import write_traces

from tfckpt_trainer.catalog.retention.prune import move_to_trash
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.rundir.command_queue import CommandQueue, advance
from tfckpt_trainer.rundir.heartbeats.health import RunState
from tfckpt_trainer.rundir.log_times import LogTimesRecorder
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.storage import owners
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.monitor.own_actions import ActionRun, ActionState
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from tfckpt_tui.services.processes.own_actions import ActionOutcome

NOW = 1_790_000_000.0
SIZES = [(80, 24), (120, 40), (200, 50)]
LIGHT = "tfckpt-light"
SCREENS = {
    "charts-by-time": ("c", "t"),
    "settings": ("comma",),
    "export": ("e",),
    "undo": ("u",),
    "marked": ("space", "down", "space", "p"),
    "diagnostics": ("o",),
    "tensorboard": ("t",),
}
"""Screens that need no more than keys."""

PAGES = {
    "prune": ("p", "2"),
    "help": ("question_mark",),
    "compare": ("down", "space", "space", "d", "n"),
    "stop": ("x",),
    "no-own-actions": ("A",),
    "trace": ("P", "n", *"15", "down", *"0,1"),
    "worker": ("w", "right"),
    "events": ("J", "down"),
    "filtered-and-sorted": ("greater_than_sign", "slash", *"step>100 -400"),
}
"""The same, before anything was pruned."""

IN_LIGHT = {
    "dashboard": (),
    "restore": ("down", "down", "down", "r"),
    "checkpoint": ("down", "enter"),
    "charts": ("c", "plus"),
}
NAMES = [f"{width}x{height}" for width, height in SIZES]
BY_SIZE = pytest.mark.parametrize("size", SIZES, ids=NAMES)
AT_SMALLEST = pytest.mark.parametrize("size", SIZES[:1], ids=NAMES[:1])
Compare = Callable[..., bool]


def still(factory: RunFactory, **changes: Any) -> TfckptApp:
    """The app on one snapshot of a run, with what depends on the machine made the same."""
    snapshot = SnapshotReader(factory.run).read(NOW)
    snapshot = replace(
        snapshot,
        root=Path("/data/runs/language-model"),
        disk_total=500_000_000_000,
        disk_free=41_000_000_000,
        **changes,
    )
    return TfckptApp(factory.run, monitor=StillMonitor(snapshot))


def pressing(*keys: str) -> Callable[[Pilot[int]], Any]:
    async def before(pilot: Pilot[int]) -> None:
        await until(pilot, lambda: pilot.app.snapshot, "the snapshot")  # type: ignore[attr-defined]
        await pilot.pause()
        await pilot.press(*keys)
        await until_jobs_are_shown(pilot)

    return before


@pytest.fixture(autouse=True)
def _own_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/home/ada/.config")
    # Whoever runs the tests owns the files.
    monkeypatch.setattr(owners, "name_of", lambda user: "ada")


@pytest.fixture
def snap_compare(snap_compare: Compare) -> Compare:
    def compare(*arguments: Any, **options: Any) -> bool:
        is_same = snap_compare(*arguments, **options)
        assert is_same, (
            "The screen changed. Compare both in snapshot_report.html. To accept the new one: "
            "`.venv/bin/pytest tests/tui/test_app_snapshots.py --snapshot-update`."
        )
        return is_same

    return compare


def prune_two(made: RunFactory) -> None:
    move_to_trash(
        made.run, ["ckpt-300", "ckpt-400"], by="ada@trainhost", now=NOW - 90, update_state_file=True
    )


@pytest.fixture
def made(tmp_path: Path) -> RunFactory:
    made = two_branches(tmp_path / "run", now=NOW)
    (made.run.root / "ckpt-200.data-00000-of-00001").unlink()
    made.run.pin("ckpt-100").touch()
    made.event_log(EventKind.WORKER_LOST, "Worker 1 was killed by signal 9.", 100, step=420)
    made.event_log(EventKind.RESTART, "All workers start again.", 90, step=400)
    return made


@BY_SIZE
def test_dashboard(snap_compare: Compare, made: RunFactory, size: tuple[int, int]) -> None:
    assert snap_compare(still(made), terminal_size=size, run_before=pressing())


@BY_SIZE
def test_failed(snap_compare: Compare, made: RunFactory, size: tuple[int, int]) -> None:
    fail(made)
    assert snap_compare(still(made), terminal_size=size, run_before=pressing())


@BY_SIZE
def test_stalled(snap_compare: Compare, made: RunFactory, size: tuple[int, int]) -> None:
    stall(made)
    assert snap_compare(still(made), terminal_size=size, run_before=pressing())


@BY_SIZE
def test_restore(snap_compare: Compare, made: RunFactory, size: tuple[int, int]) -> None:
    keys = pressing("down", "down", "down", "r", "tab")
    assert snap_compare(still(made), terminal_size=size, run_before=keys)


@BY_SIZE
def test_checkpoint(snap_compare: Compare, made: RunFactory, size: tuple[int, int]) -> None:
    keys = pressing("down", "enter")
    assert snap_compare(still(made), terminal_size=size, run_before=keys)


@pytest.mark.e2e
@pytest.mark.parametrize("keys", [("end",), ("end", "enter")], ids=["list", "page"])
def test_files_of_keras(snap_compare: Compare, made: RunFactory, keys: tuple[str, ...]) -> None:
    for epoch in (4, 5):
        path = made.run.root / f"w-{epoch:02d}.weights.h5"
        with h5py.File(path, "w") as file:
            for number, value in enumerate(range(-4, 12, 4)):
                shape = (64, 32) if number % 2 == 0 else (32,)
                file[f"layers/dense_{number // 2}/vars/{number % 2}"] = np.linspace(
                    value, epoch, math.prod(shape), dtype=np.float32
                ).reshape(shape)
            file["layers/dense_1/vars"].attrs["name"] = "classifier"
        os.utime(path, (NOW - 900 * (6 - epoch),) * 2)
    assert snap_compare(still(made), terminal_size=(80, 24), run_before=pressing(*keys))


@BY_SIZE
def test_charts(snap_compare: Compare, made: RunFactory, size: tuple[int, int]) -> None:
    prune_two(made)
    assert snap_compare(still(made), terminal_size=size, run_before=pressing("c", "plus"))


@pytest.mark.parametrize("name", PAGES)
def test_page(snap_compare: Compare, made: RunFactory, name: str) -> None:
    keys = pressing(*PAGES[name])
    assert snap_compare(still(made), terminal_size=SIZES[0], run_before=keys)


@pytest.mark.parametrize("name", SCREENS)
@AT_SMALLEST
def test_screen(snap_compare: Compare, made: RunFactory, name: str, size: tuple[int, int]) -> None:
    prune_two(made)
    assert snap_compare(still(made), terminal_size=size, run_before=pressing(*SCREENS[name]))


@pytest.mark.parametrize("name", IN_LIGHT)
def test_light_theme(snap_compare: Compare, made: RunFactory, name: str) -> None:
    prune_two(made)
    app = still(made)
    app.theme = LIGHT
    assert snap_compare(app, terminal_size=(120, 40), run_before=pressing(*IN_LIGHT[name]))


@pytest.mark.parametrize("theme", ["tfckpt-contrast", "tfckpt-colour-blind"])
def test_other_themes(snap_compare: Compare, made: RunFactory, theme: str) -> None:
    app = still(made)
    app.theme = theme
    assert snap_compare(app, terminal_size=(120, 40), run_before=pressing())


@BY_SIZE
def test_hyperparameters(snap_compare: Compare, made: RunFactory, size: tuple[int, int]) -> None:
    message = "learning_rate 0.003 → 0.0003 on 2 workers, after step 390."
    changes = [{"name": "learning_rate", "before": 0.003, "after": 0.0003}]
    details = {"hyperparameters": changes}
    made.event_log(EventKind.SET, message, 80, step=390, by="ann@desk", details=details)
    app = still(made.tells(*HYPERPARAMETERS))
    assert snap_compare(app, terminal_size=size, run_before=pressing("H"))


def test_set(snap_compare: Compare, made: RunFactory) -> None:
    app = still(made.tells(*HYPERPARAMETERS))
    keys = pressing("H", "enter", *"1e-4", "down", *"900", "down", *"50")
    assert snap_compare(app, terminal_size=(80, 24), run_before=keys)


@BY_SIZE
def test_guards(snap_compare: Compare, made: RunFactory, size: tuple[int, int]) -> None:
    app = still(made.guarded())
    assert snap_compare(app, terminal_size=size, run_before=pressing("G"))


@BY_SIZE
def test_profile(snap_compare: Compare, made: RunFactory, size: tuple[int, int]) -> None:
    write_traces(made.run, NOW - 240)
    assert snap_compare(still(made), terminal_size=size, run_before=pressing("P"))


class StillQueue:
    """Runs of actions that stay as they are."""

    def __init__(self, *runs: ActionRun) -> None:
        self.runs = runs

    def output(self, number: int) -> tuple[int, bytes]:
        lines = [f"batch {n}: loss {3 / n:.3f}" for n in range(1, 40)]
        return 2_400_000, "\n".join(lines).encode()

    def stop(self) -> None:
        pass


OUTCOMES = (
    (ActionState.WAITING, None),
    (ActionState.RUNNING, None),
    (ActionState.DONE, ActionOutcome(0, 12.5, {"accuracy": 0.913})),
    (ActionState.FAILED, ActionOutcome(3, 2.0, problem="The command ended with status 3.")),
    (ActionState.CANCELLED, ActionOutcome(-15, 61.0, problem="cancelled", was_cancelled=True)),
)


@BY_SIZE
def test_own_actions(snap_compare: Compare, made: RunFactory, size: tuple[int, int]) -> None:
    app = still(made)
    runs = [
        ActionRun(9 - n, "evaluate", (f"ckpt-{900 - 100 * n}",), True, state, None, outcome)
        for n, (state, outcome) in enumerate(OUTCOMES)
    ]
    app.own_actions = StillQueue(*runs)  # type: ignore[assignment]
    assert snap_compare(app, terminal_size=size, run_before=pressing("A", "down", "down"))


def test_add_a_guard(snap_compare: Compare, made: RunFactory) -> None:
    async def before(pilot: Pilot[int]) -> None:
        await pressing("G", "a", *"above loss 4: stop")(pilot)
        await until(pilot, lambda: "It would have fired" in top(pilot.app), "the replay")

    assert snap_compare(still(made.guarded()), terminal_size=(80, 24), run_before=before)


@BY_SIZE
def test_logs(snap_compare: Compare, made: RunFactory, size: tuple[int, int]) -> None:
    moments = iter(NOW - 600 + 7 * number for number in range(60))
    clock = LogTimesRecorder(lambda: next(moments))
    logs = [made.run.worker_log(index) for index in range(2)]
    for number in range(60):
        with logs[number % 2].open("a") as file:
            file.write(f"step {10 * number} loss {4 - number * 0.03:.3f}\n")
            if number == 51:
                file.write('Traceback (most recent call last):\n  File "train.py", line 3\n')
                file.write("ValueError: shapes (3,) and (4,) do not match\n")
        clock.record(logs)
    assert snap_compare(still(made), terminal_size=size, run_before=pressing("l"))


@AT_SMALLEST
def test_launch(snap_compare: Compare, made: RunFactory, size: tuple[int, int]) -> None:
    options = LaunchOptions(
        run_directory="/data/runs/language-model",
        command=("sh", "train.sh", "--steps", "5000"),
        working_directory="/",
        workers=2,
    )
    store(made.run.launch_file, options)
    app = still(made, state=RunState.STOPPED)
    assert snap_compare(app, terminal_size=size, run_before=pressing("L"))


def test_too_small(snap_compare: Compare, made: RunFactory) -> None:
    assert snap_compare(still(made), terminal_size=(50, 12), run_before=pressing())


def test_not_our_run(snap_compare: Compare, tmp_path: Path) -> None:
    factory = RunFactory(tmp_path, now=NOW)
    for step in (10, 20, 30):
        factory.checkpoint(step, recorded=False, seconds_ago=600 - step)
    assert snap_compare(still(factory), terminal_size=(80, 24), run_before=pressing())


def test_progress_and_failure(snap_compare: Compare, made: RunFactory) -> None:
    box = CommandQueue(made.run)
    box.submit(CommandKind.SAVE, requested_by="test", now=NOW - 2)
    taken = box.claim(NOW)
    assert taken is not None
    refused = advance(taken, CommandState.REFUSED, "Not enough disk: 38.4 MB are needed. " * 4)
    box.submit(CommandKind.RESTORE, {"name": "ckpt-300"}, requested_by="test", now=NOW - 1)
    agreed = box.claim(NOW)
    assert agreed is not None
    agreed = advance(agreed, CommandState.AGREED, "", step=440, seen_by=[0, 1], worker_count=2)
    app = still(made, working=(agreed,), finished=(refused,))
    assert snap_compare(app, terminal_size=(80, 24), run_before=pressing())


def test_nothing_yet(snap_compare: Compare, tmp_path: Path) -> None:
    factory = RunFactory(tmp_path, now=NOW).create()
    assert snap_compare(still(factory), terminal_size=(80, 24), run_before=pressing())


def test_the_pictures_show_something():
    """A comparison of two empty files would always agree."""
    pictures = list((Path(__file__).parent / "__snapshots__" / Path(__file__).stem).glob("*.svg"))
    assert pictures
    # None is left of a test that is gone.
    assert {picture.stem.partition("[")[0] for picture in pictures} <= globals().keys()
    assert all("<text" in picture.read_text() for picture in pictures)


@AT_SMALLEST
def test_track(snap_compare: Compare, made: RunFactory, size: tuple[int, int]) -> None:
    async def before(pilot: Pilot[int]) -> None:
        await pressing("enter")(pilot)
        await pressing("c")(pilot)

    assert snap_compare(still(made), terminal_size=size, run_before=before)


@AT_SMALLEST
def test_trash(snap_compare: Compare, made: RunFactory, size: tuple[int, int]) -> None:
    for names, at in ((["ckpt-100"], NOW - 7200), (["ckpt-300", "ckpt-400"], NOW - 90)):
        made.run.pin(names[0]).unlink(missing_ok=True)
        move_to_trash(made.run, names, by="ada@trainhost", now=at, update_state_file=True)
    assert snap_compare(still(made), terminal_size=size, run_before=pressing("T"))
