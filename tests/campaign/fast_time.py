"""The app and the list of runs, open on a run to which much happens in little time.

A case is a number. It makes the order of saves, prunes, undos, restores, restarts and emptyings of
the trash. Open files, threads, memory and names in directories must not grow with their number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import psutil
from checkpoint_directory import CheckpointDirectory
from rundir_factory import RunFactory

from child_processes import Child
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.runs_app import RunsApp
from tfckpt_tui.settings.config import Config
from waiting import wait_until

from .areas import Drawn, Outcome
from .growth import Used, grown
from .storage_faults import RUN, do

ROUNDS, SAVES = 40, 5
LOOK_SECONDS = 0.1
EQUAL_SECONDS = 30


class FastTime(Drawn):
    """What is open for long neither grows nor falls behind."""

    name = "time"

    def __init__(self, place: Path) -> None:
        """Needs nothing."""

    def run(self, case: str, place: Path) -> Outcome:
        """Opens both, has much happen, and opens both anew."""
        chance, eventful = Random(case), Eventful(place / "run")
        opened = {kind: Opened(kind, place, "open") for kind in VIEWS}
        used: dict[str, list[Used]] = {kind: [] for kind in VIEWS}
        try:
            wait_until(lambda: all(one.view() for one in opened.values()), 60, "both apps open")
            for _ in range(ROUNDS):
                eventful.round(chance, place)
                for kind, one in opened.items():
                    used[kind].append(one.used(eventful.run.root))
            found = [one for kind in VIEWS for one in grown(kind, used[kind])]
            found += [one for kind in VIEWS for one in unequal(opened[kind], place)]
        except AssertionError as error:
            found = [str(error)]
        finally:
            told = [words for one in opened.values() for words in one.end()]
        return Outcome(ROUNDS * (SAVES + 1), (*told, *found))


class Eventful:
    """A run of which much is written in little time."""

    def __init__(self, root: Path) -> None:
        """Makes the run."""
        self._logs, self._checkpoints = RunFactory(root).create(), CheckpointDirectory(root)
        self.run = self._logs.run
        self._step, self._branch = 0, 0

    def round(self, chance: Random, place: Path) -> None:
        """Trains and saves, and then restarts; meanwhile a user prunes. All rounds end alike."""
        logs = self._logs
        for _ in range(SAVES):
            self._step += 10
            name = self._checkpoints.ours(self._step, self._branch, age=-self._step)
            logs.event_log(EventKind.SAVE, f"Saved {name}.", step=self._step, checkpoint=name)
            logs.series(self._step - 9, self._step, self._branch)
            logs.live_worker(0, step=self._step, branch=self._branch)
        logs.event_log(EventKind.RESTART, "Started 1 worker again (restart 1 of 20).")
        self.run.worker_status(0).unlink()
        prune = ["prune", RUN, "--keep-last", "2", "--yes"]
        commands = [prune]
        if chance.random() < 0.5:
            commands += [["undo", RUN], prune]
        for words in (*commands, ["trash", RUN, "empty", "--yes"]):
            code, told = do(words, place)
            assert code == 0, f"{words}: {told}"
        if chance.random() < 0.1:
            self._branch += 1
            self._checkpoints.restored(name, self._step, self._branch)
        logs.live_worker(0, step=self._step, branch=self._branch)


def view_of_run(app: TfckptApp) -> str:
    """What an app shows of a run, without what depends on when it is read."""
    seen = app.snapshot
    if seen is None or seen.lacks_samples:
        return ""
    rows = [(c.name, c.step, c.branch, c.is_head) for c in seen.checkpoints]
    events = [(entry.kind, entry.message) for entry in seen.event_log[-20:]]
    trash = [(one.id, one.names) for one in seen.trash]
    return "\n".join(map(str, (rows, seen.step, seen.branch, seen.start, trash, events)))


def view_of_list(app: RunsApp) -> str:
    """What the list shows of its runs."""
    read = app._newest
    return str([(run.root, run.state, run.step, run.branch) for run in read.runs]) if read else ""


VIEWS = {"app": view_of_run, "list": view_of_list}


class Opened:
    """An app that is open in a process of its own."""

    def __init__(self, kind: str, place: Path, name: str) -> None:
        """Opens it.

        Args:
            kind: One of `VIEWS`.
            place: Where the run is, and where the process writes what it shows.
            name: Another one for each.
        """
        self.kind, self._view = kind, place / f"{kind}-{name}"
        self._child = Child(lambda: asyncio.run(self._shown(place)), None)
        self._process = psutil.Process(self._child.pid)

    def view(self) -> str:
        """Returns what it shows."""
        return self._view.read_text() if self._view.exists() else ""

    def used(self, root: Path) -> Used:
        """Returns what it uses, and how many names a run directory has."""
        names = sum(1 for _ in root.rglob("*"))
        process = self._process
        return Used(process.num_fds(), process.num_threads(), process.memory_info().rss, names)

    def end(self) -> list[str]:
        """Ends it; returns what went wrong in it."""
        self._process.kill()
        _, told = self._child.end()
        return [f"the {self.kind} ended: {told}"] if told else []

    async def _shown(self, place: Path) -> int:
        make: Callable[[], TfckptApp | RunsApp] = {
            "app": lambda: TfckptApp(RunDirectory(place / "run")),
            "list": lambda: RunsApp(place, Config()),
        }[self.kind]
        app = make()
        new = self._view.with_suffix(".new")
        async with app.run_test():
            while app.is_running and app.crash is None:
                new.write_text(VIEWS[self.kind](app))
                new.rename(self._view)
                await asyncio.sleep(LOOK_SECONDS)
        raise RuntimeError(app.crash)


def unequal(opened: Opened, place: Path) -> Iterator[str]:
    """Yields how what is open differs from what is opened now."""
    fresh = Opened(opened.kind, place, "fresh")
    try:
        wait_until(lambda: fresh.view() and fresh.view() == opened.view(), EQUAL_SECONDS, "equal")
    except AssertionError:
        yield f"{opened.kind} shows {opened.view()}, but opened now {fresh.view()}"
    finally:
        fresh.end()
