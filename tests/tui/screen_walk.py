"""Opens every screen and dialog of a run, in all sizes and themes.

async with walking(made) as walk:
    async for stop in walk.screens(STOPS):
        found = await walk.flaws_of(stop)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
from app_driving import StillMonitor, resize, top, type_ahead, until, until_jobs_are_shown
from msgspec.structs import replace
from rundir_factory import HYPERPARAMETERS, RunFactory
from screen_flaws import colour_problems, layout_problems
from textual.pilot import Pilot
from textual.screen import Screen
from tiny_trace import write_traces

from recorded_slurm import RecordedSlurm, job_line
from tfckpt_trainer.catalog.directory.other_formats import OtherFile, find_other_file
from tfckpt_trainer.catalog.retention.policy import Policy
from tfckpt_trainer.catalog.retention.prune import move_to_trash
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.slurm.job_queries import read_jobs
from tfckpt_trainer.rundir.heartbeats.health import RunState
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.dialogs.batch_job import CancelJobDialog, SubmitJobDialog
from tfckpt_tui.app.dialogs.many import ManyDialog, ValueDialog
from tfckpt_tui.app.dialogs.prune_questions import (
    BesideTrainerDialog,
    DeleteForGoodDialog,
    PruneFileDialog,
)
from tfckpt_tui.app.dialogs.stop import ForceStopDialog, StopProcessDialog
from tfckpt_tui.app.screens.answers import AnswersScreen
from tfckpt_tui.app.screens.processes import ProcessesScreen
from tfckpt_tui.app.screens.runs_compare import RunsCompareScreen
from tfckpt_tui.app.screens.tensor_pages import FileScreen
from tfckpt_tui.app.screens.track import TrackScreen
from tfckpt_tui.formats.process_columns import HostProcess
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from tfckpt_tui.services.batch.job_view import JobView
from tfckpt_tui.services.checkpoints.inspect import inspect
from tfckpt_tui.services.control.force_stop import ForceStopPlan
from tfckpt_tui.services.control.many import ManyPlan, RunPlan, first_answers
from waiting import SHORTEST_PAUSE

ThemeInSize = tuple[str, tuple[int, int]]
SIZES = ((60, 20), (80, 24), (120, 40), (200, 50))
"""Smallest, default, large and largest terminal."""
FIRST_THEMES = ("tfckpt-dark", "tfckpt-light")
OTHER_THEMES = ("tfckpt-contrast", "tfckpt-colour-blind")
"""Like the dark one, with other colours of the same names."""


def in_sizes(theme: str) -> list[ThemeInSize]:
    """All sizes, in one theme."""
    return [(theme, size) for size in SIZES]


# The smallest has least room, and the largest shows most.
FIRST_LOOKS = ((FIRST_THEMES[0], SIZES[0]), *((theme, SIZES[-1]) for theme in FIRST_THEMES))
OTHER_LOOKS = (
    *in_sizes(OTHER_THEMES[0]),
    *in_sizes(FIRST_THEMES[0])[1:-1],
    (OTHER_THEMES[1], SIZES[-1]),
)
"""Themes in sizes that are taken each week; they begin and end with a size of the first ones."""

FRESH: Any = SimpleNamespace(
    processes=(),
    fresh_seconds=12.0,
    wait_seconds=48,
    open_checkpoints=frozenset(),
    fresh_checkpoints=frozenset({"ckpt-500"}),
    unseen_processes=0,
    other_machines=False,
)
"""Evidence of another trainer: a checkpoint that has just been written."""

Open = tuple[str, ...] | Callable[[RunSnapshot], Screen[Any]]

SETTLE_SECONDS = 5.0
"""How long a screen may take to get its layout."""


@dataclass(frozen=True)
class Stop:
    """One screen of the walk.

    Attributes:
        name: For messages.
        open: The keys that open it from the dashboard, or what makes it, if keys cannot.
        shows: A text that is on it once it has loaded.
        screen: The name of its class.
        toast: A notification over it.
        theme: The only theme, if it cannot change while the screen is open.
        state: The state of the run.
        job: The batch job of the run.
    """

    name: str
    open: Open
    shows: str
    screen: str
    toast: str = ""
    theme: str = ""
    state: RunState = RunState.TRAINING
    job: JobView | None = None


def waiting_job() -> JobView:
    """A job that is held in the queue."""
    slurm = RecordedSlurm(job_line(reason="JobHeldUser"))
    record = BatchJob(
        scheduler="slurm", id="1234", user="ada", submitted_at=1795341252.0, script="job.sbatch"
    )
    return JobView(record, read_jobs(["1234"], runner=slurm).jobs["1234"])


JOB = waiting_job()
NINE_PROCESSES = tuple(f"worker {n} (process {4711 + n})" for n in range(9))
TOAST = "The filter is invalid: 'lost' is not one of step, loss, state, branch, size and saved."
GO_TO = ("ctrl+p", *"500")
SCRIPT = Path("/data/runs/language-model/.tfckpt/job.sbatch")


def track_screen(run: RunSnapshot) -> TrackScreen:
    """The chart of a variable of the newest checkpoint."""
    directory = RunDirectory(Path(run.path))
    newest = run.checkpoints[0]
    return TrackScreen(directory, run, newest, inspect(directory, newest).variables[0])


def keras_file(directory: RunDirectory) -> OtherFile:
    """A file of Keras in the directory of the run."""
    with h5py.File(directory.root / "w-05.weights.h5", "w") as file:
        for name in ("layers/dense/vars/0", "layers/dense/vars/1", "optimizer/vars/0"):
            file[name] = [1.0]
    found = find_other_file(directory.root, "w-05.weights.h5")
    assert found is not None
    return found


def file_screen(run: RunSnapshot) -> FileScreen:
    """The page of that file."""
    directory = RunDirectory(Path(run.path))
    return FileScreen(directory, keras_file(directory), run.at, lambda file: None)


def prune_file_dialog(run: RunSnapshot) -> PruneFileDialog:
    """The question before that file goes to the trash."""
    return PruneFileDialog(run, keras_file(RunDirectory(Path(run.path))), "")


PROCESS = HostProcess(
    pid=4711,
    started_at=0.0,
    after_boot=0.0,
    script="train.py",
    command=("python", "train.py", "--model_dir", "runs/digits"),
    directory="/home/ada/digits",
    cpu_percent=380.0,
    memory_bytes=3 << 30,
    gpu_memory_bytes=71 << 30,
    files=("/home/ada/digits/runs/digits/events.out.tfevents.1.trainhost",),
    logs=("/home/ada/digits/train.log",),
)
"""A process that does not use this library."""


def processes_screen(run: RunSnapshot) -> ProcessesScreen:
    """The page of that process."""
    trained = replace(run, processes=(PROCESS,))
    return ProcessesScreen(trained, lambda process: None, lambda name: None, "")


def plan_for_runs(run: RunSnapshot) -> ManyPlan:
    """A save on many runs, of which one cannot."""
    words = "Saves a checkpoint on 2 workers after step 438."
    roots = [Path(run.path).with_name(f"digits-{number}") for number in range(30)]
    silent = RunPlan(roots[0], "The directory does not answer.", reason="no answer")
    return ManyPlan("Save", (silent, *(RunPlan(root, words, lambda: words) for root in roots[1:])))


def many_dialog(run: RunSnapshot) -> ManyDialog:
    """The question before it."""
    dialog = ManyDialog("Save")
    dialog.call_after_refresh(dialog.show_plan, plan_for_runs(run))
    return dialog


def value_dialog(run: RunSnapshot) -> ValueDialog[Policy]:
    """The question how many checkpoints of many runs stay."""
    return ValueDialog("prune", "keep last", "such as 5", "How many stay?", lambda text: Policy())


STOPS = (
    Stop("dashboard", (), "history", "DashboardScreen"),
    Stop("filter", ("slash", *"step>100"), "step>100", "DashboardScreen"),
    Stop("checkpoint", ("enter",), "variables", "CheckpointScreen"),
    Stop("file", file_screen, "optimizer", "FileScreen"),
    Stop("prune a file", prune_file_dialog, "move to the trash", "PruneFileDialog"),
    Stop("track", track_screen, "lowest", "TrackScreen"),
    Stop("compare", ("d",), "reads what changed", "CompareScreen"),
    Stop("measured", ("d", "n"), "all tensors together", "CompareScreen"),
    Stop("worker", ("w",), "step time", "WorkerScreen"),
    Stop("charts", ("c",), "loss", "ChartsScreen"),
    Stop("joined charts", ("c", "space", "space", "m", "s", "L", "n"), "smoothed", "ChartsScreen"),
    Stop("compare charts", ("c", "r"), "the directory of a run", "ReferenceDialog"),
    Stop("events", ("J", "down"), "event", "EventLogScreen"),
    Stop("hyperparameters", ("H",), "generator/beta_1", "HyperparametersScreen"),
    Stop("set", ("H", "enter", *"0.01"), "on 2 workers at", "SetDialog"),
    Stop("profile", ("P",), "MatMul", "ProfileScreen"),
    Stop("trace", ("P", "n", *"15"), "the next 15 steps on w", "TraceDialog"),
    Stop("own actions", ("A",), "actions.stats", "ActionRunsScreen"),
    Stop("guards", ("G",), "It would have fired", "GuardsScreen"),
    Stop("add a guard", ("G", "a", *"above loss 4: stop"), "It would", "AddGuardDialog"),
    Stop("remove a guard", ("G", "down", "x"), "Training drops it", "RemoveGuardDialog"),
    Stop("logs", ("l",), "step 590", "LogsScreen"),
    Stop("stacks", ("S",), "asking", "StacksScreen"),
    Stop("trash", ("T",), "trash", "TrashScreen"),
    Stop("settings", ("comma",), "config.toml", "SettingsScreen"),
    Stop("help", ("question_mark",), "Keys of the dashboard", "HelpScreen"),
    Stop("help of the logs", ("l", "question_mark"), "Keys of the logs", "HelpScreen"),
    Stop("diagnostics", ("o",), "model-50", "DiagnosticsScreen"),
    Stop("restore", ("down", "r"), "which checkpoint?", "RestoreDialog"),
    Stop("prune", ("p", "2"), "move to the trash", "PruneDialog"),
    Stop("prune marked", ("space", "down", "space", "p"), "prune marked", "PruneMarkedDialog"),
    Stop("undo", ("u",), "undo a prune", "UndoDialog"),
    Stop("undo from the trash", ("T", "u"), "undo a prune", "UndoDialog"),
    Stop("empty the trash", ("T", "E"), "delete for good", "EmptyTrashDialog"),
    Stop("export", ("e",), "export", "ExportDialog"),
    Stop("check", ("K",), "resume exactly?", "QuickCheckDialog"),
    Stop("stop", ("x",), "stop", "StopDialog"),
    Stop("tensorboard", ("t",), "not running", "TensorBoardDialog"),
    Stop("launch", ("L",), "Starts ", "LaunchDialog", state=RunState.STOPPED),
    Stop(
        "end the processes",
        lambda run: ForceStopDialog(run, ForceStopPlan(None, NINE_PROCESSES)),
        "and 1 more",
        "ForceStopDialog",
    ),
    Stop("processes", processes_screen, "two lines in the script", "ProcessesScreen"),
    Stop(
        "end a process",
        lambda run: StopProcessDialog(run, PROCESS),
        "gets SIGTERM",
        "StopProcessDialog",
    ),
    Stop(
        "cancel an active job",
        lambda run: ForceStopDialog(run, ForceStopPlan(JOB)),
        "Slurm cancels it",
        "ForceStopDialog",
    ),
    Stop("queued", (), "JobHeld", "DashboardScreen", state=RunState.QUEUED, job=JOB),
    Stop(
        "cancel the job",
        lambda run: CancelJobDialog(replace(run, job=JOB), JOB),
        "place in the queue",
        "CancelJobDialog",
    ),
    Stop(
        "submit the job",
        lambda run: SubmitJobDialog(run, JOB, SCRIPT),
        "submit the job again",
        "SubmitJobDialog",
    ),
    Stop(
        "disk full",
        lambda run: DeleteForGoodDialog(run, names_of(run)),
        "disk is full",
        "DeleteForGoodDialog",
    ),
    Stop(
        "beside another trainer",
        lambda run: BesideTrainerDialog(run, FRESH, 3),
        "new files?",
        "BesideTrainerDialog",
    ),
    Stop("plan for many runs", many_dialog, "29 of 30", "ManyDialog"),
    Stop("value for many runs", value_dialog, "How many stay?", "ValueDialog"),
    Stop(
        "answers of many runs",
        lambda run: AnswersScreen("Save", first_answers(plan_for_runs(run))),
        "29 waiting",
        "AnswersScreen",
    ),
    Stop(
        "compare runs",
        lambda run: RunsCompareScreen([Path(run.path), Path(run.path).with_name("gone")]),
        "equal",
        "RunsCompareScreen",
    ),
    Stop("restore of an unknown step", ("r", *"999"), "999", "RestoreDialog"),
    *(
        Stop("palette", ("ctrl+p",), "save: ", "CommandPalette", theme=name)
        for name in FIRST_THEMES
    ),
    *(
        Stop("palette, searched", GO_TO, "nearest to", "CommandPalette", theme=name)
        for name in FIRST_THEMES
    ),
    Stop("toast", (), "is not one of", "DashboardScreen", TOAST),
    Stop("toast on a page", ("l",), "is not one of", "LogsScreen", TOAST),
    Stop("toast on a dialog", ("p", "2"), "is not one of", "PruneDialog", TOAST),
)


def names_of(run: RunSnapshot) -> tuple[str, ...]:
    return tuple(checkpoint.name for checkpoint in run.checkpoints)


def furnish(made: RunFactory) -> RunFactory:
    """Adds what the screens need: a trash, a damaged checkpoint, logs, a launch."""
    move_to_trash(made.run, ["ckpt-300"], by="ada@trainhost", now=made.now, update_state_file=True)
    (made.run.root / "ckpt-200.data-00000-of-00001").unlink()
    made.checkpoint(50, name="model-50", recorded=False, listed=False, seconds_ago=3000)
    made.run.pin("ckpt-100").touch()
    made.run.worker_log(0).write_text("".join(f"step {10 * n} loss 2.5\n" for n in range(60)))
    options = LaunchOptions(
        run_directory="/data/runs/language-model",
        command=("sh", "train.sh", "--steps", "5000"),
        working_directory="/",
        workers=2,
    )
    store(made.run.launch_file, options)
    made.guarded(launched=True)
    write_traces(made.run, made.now - 240)
    return made.tells(*HYPERPARAMETERS)


class Look:
    """Takes the topmost screen of an app through themes in sizes."""

    def __init__(self, pilot: Pilot[Any], looks: Sequence[ThemeInSize]) -> None:
        self._pilot = pilot
        self._looks = list(looks)

    @property
    def screen(self) -> Screen[Any]:
        """The topmost screen."""
        return self._pilot.app.screen

    async def press(self, *keys: str) -> None:
        """Presses keys."""
        await self._pilot.press(*keys)

    async def flaws(self, theme: str = "") -> list[str]:
        """Returns the flaws in all sizes and themes; each time, it goes the other way.

        Args:
            theme: The only theme, in all sizes; empty for all themes.
        """
        self._looks.reverse()
        found = []
        for name, (width, height) in in_sizes(theme) if theme else self._looks:
            await self._take_theme(name)
            await self._take_size(width, height)
            problems = await self.settled(_layout_and_colour)
            found += [f"{name}, {width}x{height}: {problem}" for problem in problems]
        return found

    async def settled(self, problems: Callable[[Screen[Any]], list[str]]) -> list[str]:
        """Returns what `problems` finds once the screen has its layout, or after a limit."""
        until = time.monotonic() + SETTLE_SECONDS
        while (found := problems(self.screen)) and time.monotonic() < until:
            await asyncio.sleep(SHORTEST_PAUSE)
            self.screen._on_timer_update()
        return found

    async def _take_size(self, width: int, height: int) -> None:
        if self._pilot.app.size != (width, height):
            await resize(self._pilot, width, height)

    async def _take_theme(self, theme: str) -> None:
        if self._pilot.app.theme != theme:
            self._pilot.app.theme = theme
            await self._pilot.pause()


def _layout_and_colour(screen: Screen[Any]) -> list[str]:
    return [*layout_problems(screen), *colour_problems(screen)]


class Walk(Look):
    """An app that shows one snapshot of a run."""

    def __init__(
        self,
        pilot: Pilot[int],
        monitor: StillMonitor,
        snapshot: RunSnapshot,
        looks: Sequence[ThemeInSize],
    ) -> None:
        super().__init__(pilot, looks)
        self._monitor = monitor
        self._snapshot = snapshot

    @property
    def app(self) -> TfckptApp:
        app = self._pilot.app
        assert isinstance(app, TfckptApp)
        return app

    async def screens(self, stops: Sequence[Stop]) -> AsyncIterator[Stop]:
        """Opens each screen, yields it, and closes it."""
        for stop in stops:
            await self.open(stop)
            if stop.toast:
                self.app.notify(stop.toast, title="Filter", severity="warning", timeout=3600)
            await until(
                self._pilot, lambda stop=stop: stop.shows in top(self.app), f"{stop.name} is open"
            )
            yield stop
            self.app.clear_notifications()
            while len(self.app.screen_stack) > 1:
                await self.app.pop_screen()
            await self._pilot.press("escape", "escape")

    async def open(self, stop: Stop, *, waits: bool = True) -> None:
        """Opens a screen from the dashboard; waits for what each key does, unless told not to."""
        await self._show(stop)
        if stop.theme:
            await self._take_theme(stop.theme)
            await self._take_size(*SIZES[0])
        if callable(stop.open):
            self.app.push_screen(stop.open(self._snapshot))
        elif waits:
            for key in ("home", *stop.open):
                await until_jobs_are_shown(self._pilot)
                await self._pilot.press(key)
        else:
            type_ahead(self._pilot, "home", *stop.open)

    async def until_it_quits(self) -> None:
        """Waits until the app has begun to close its screens."""
        await until(self._pilot, lambda: not self.app.is_running, "the end of the app")

    async def _show(self, stop: Stop) -> None:
        self._monitor.give(replace(self._snapshot, state=stop.state, job=stop.job))
        await self._pilot.pause()

    async def flaws_of(self, stop: Stop) -> list[str]:
        """Returns the flaws of a screen that is open."""
        return await self.flaws(stop.theme)


@asynccontextmanager
async def walking(
    made: RunFactory, looks: Sequence[ThemeInSize] = FIRST_LOOKS
) -> AsyncIterator[Walk]:
    """The app on a run that `furnish` completed."""
    snapshot = SnapshotReader(made.run).read(made.now)
    monitor = StillMonitor(snapshot)
    app = TfckptApp(made.run, monitor=monitor)
    async with app.run_test(size=SIZES[0], notifications=True) as pilot:
        await until(pilot, lambda: app.snapshot, "the snapshot")
        await pilot.pause()
        yield Walk(pilot, monitor, snapshot, looks)
