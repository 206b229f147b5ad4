"""The list of recent runs, and one-line summaries of runs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tfckpt_trainer.bundle.state_file import read_state_file
from tfckpt_trainer.catalog.alerts import find_alerts
from tfckpt_trainer.catalog.saved_model import is_in_saved_model
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.launch.orphans import read_supervisor
from tfckpt_trainer.rundir.documents import Document, load_if_exists, store
from tfckpt_trainer.rundir.files import make_directory
from tfckpt_trainer.rundir.health import (
    RunState,
    has_reported_end,
    last_sign_at,
    living,
    read_workers,
    run_state,
    worker_state,
)
from tfckpt_trainer.rundir.paths import RunDirectory, parse_checkpoint_name
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.user_directories import state_directory
from tfckpt_tui.settings.timed_reads import Answer, TimedReads

MOST_RECENT = 50
"""How many recent runs are kept."""

MOST_FOUND = 200
"""How many runs a search below a directory returns at most."""

_DEPTH = 3
_FILE = "runs.json"


class RecentRuns(Document, frozen=True, kw_only=True):
    """`runs.json` in the state directory: the recent runs.

    Attributes:
        directories: The run directories, newest first.
        selected: The checkpoint under the cursor, by run directory, unless it was the newest.
    """

    directories: list[str] = []
    selected: dict[str, str] = {}


@dataclass(frozen=True)
class RunSummary:
    """One line about a run.

    Attributes:
        step: The step in the chief's last heartbeat, or else of the newest checkpoint.
        active_at: Time of the last heartbeat or save, in seconds since the epoch.
        alerts: The alerts of the run in a few words each, the most urgent first.
        heard_at: Time of the last heartbeat; 0 if there was none.
        reported: Whether its processes reported their end, if it has ended.
        job: The batch job in a few words, not cleaned; empty without one.
        record: The record of the batch job, if it has one.
    """

    root: Path
    state: RunState
    step: int | None
    total_steps: int | None
    loss: float | None
    strategy: str
    active_at: float
    alerts: tuple[str, ...] = ()
    heard_at: float = 0.0
    reported: bool = True
    job: str = ""
    record: BatchJob | None = None


def remember_run(root: Path) -> None:
    """Puts a run first in the list of recent runs; write errors are ignored."""
    path = os.path.abspath(root)
    with suppress(OSError, TfckptError):
        known = _recent()
        others = [other for other in known.directories if other != path]
        _keep(RecentRuns(directories=[path, *others][:MOST_RECENT], selected=known.selected))


def remember_selection(root: Path, name: str | None) -> None:
    """Stores the checkpoint under the cursor of a run; None for the newest."""
    path = os.path.abspath(root)
    with suppress(OSError, TfckptError):
        known = _recent()
        selected = {p: one for p, one in known.selected.items() if p in known.directories}
        selected.pop(path, None)
        if name is not None:
            selected[path] = name
        if selected != known.selected:
            _keep(RecentRuns(directories=known.directories, selected=selected))


def last_selection(root: Path) -> str | None:
    """Returns the stored checkpoint under the cursor of a run; None for the newest."""
    with suppress(OSError, TfckptError):
        return _recent().selected.get(os.path.abspath(root))
    return None


def remembered_runs() -> list[Path]:
    """Returns the recent runs, newest first, without asking whether they still exist."""
    with suppress(OSError, TfckptError):
        return [Path(known) for known in _recent().directories]
    return []


class RunSearch:
    """Searches for runs at and below a directory, in a thread: one may be on a disk that hangs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._thread: threading.Thread | None = None
        self._before: list[Path] = []
        self._now: list[Path] = []

    @property
    def is_running(self) -> bool:
        """Whether a search has not come to its end."""
        return self._thread is not None and self._thread.is_alive()

    def find(self, seconds: float) -> list[Path]:
        """Returns the runs that are found within `seconds`, and those of an earlier search.

        A search that has not come to its end goes on, and is not waited for again.
        """
        if not self.is_running:
            self._before, self._now = self._now, []
            arguments = (self._directory, self._now)
            self._thread = threading.Thread(target=runs_below, args=arguments, daemon=True)
            self._thread.start()
            self._thread.join(seconds)
        if not self.is_running:
            return list(self._now)
        return list(dict.fromkeys([*self._now, *self._before]))


def runs_below(directory: Path, found: list[Path] | None = None) -> list[Path]:
    """Returns the run directories at and below `directory`, by name.

    These have files of this library, TensorFlow's state file, or a checkpoint. Directories inside
    a run, hidden directories and the variables of a SavedModel are skipped.

    Args:
        directory: Where to search.
        found: A list to which each run is added as soon as it is found.
    """
    found = [] if found is None else found
    waiting = [(directory, 0)]
    while waiting and len(found) < MOST_FOUND:
        place, depth = waiting.pop(0)
        run = RunDirectory(place)
        if run.control.is_dir() or run.state_file.is_file():
            found.append(place)
            continue
        with suppress(OSError), os.scandir(place) as entries:
            listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
            if _has_checkpoint({name for name, is_directory in listed if not is_directory}):
                if not is_in_saved_model(place):
                    found.append(place)
            elif depth < _DEPTH:
                names = sorted(name for name, is_directory in listed if is_directory)
                inside = [place / name for name in names if not name.startswith(".")]
                waiting += [(path, depth + 1) for path in inside]
    return found


def _has_checkpoint(files: AbstractSet[str]) -> bool:
    """Whether files are those of a checkpoint: an index, and data of the same name."""
    indexed = {name.removesuffix(".index") for name in files if name.endswith(".index")}
    return any(name.rpartition(".data-")[0] in indexed for name in files if ".data-" in name)


def summarize_run(root: Path, now: float) -> RunSummary:
    """Summarizes one run without scanning its checkpoints."""
    run = RunDirectory(root)
    info, supervisor, record = None, None, None
    with suppress(OSError, TfckptError):
        info, supervisor = load_if_exists(run.run_file, RunInfo), read_supervisor(run)
    with suppress(OSError, TfckptError):
        record = load_if_exists(run.job_file, BatchJob)
    workers = read_workers(run, info.worker_count if info is not None else None)
    states = [(worker, worker_state(worker, now)) for worker in workers]
    state = run_state(states, supervisor, now)
    chief = next((worker for worker in workers if worker.index == 0), None)
    return RunSummary(
        root=root,
        state=state,
        step=chief.step if chief is not None else _step_of_state_file(run),
        total_steps=info.total_steps if info is not None else None,
        loss=chief.loss if chief is not None else None,
        strategy=info.strategy if info is not None else "",
        active_at=max(
            _modified_at(run.state_file), *(worker.updated_at for worker in workers), 0.0
        ),
        alerts=tuple(
            alert.title
            for alert in find_alerts(
                root,
                states,
                (),
                supervisor,
                supervisor_lives=living(supervisor, now) is not None,
            )
        ),
        heard_at=last_sign_at(states, supervisor),
        reported=has_reported_end(states, supervisor),
        record=record,
    )


class RunSummaries:
    """Summarizes several runs; one whose directory does not answer holds up no other."""

    def __init__(self) -> None:
        self._reads = TimedReads(_summarize_if_exists)

    def read(self, roots: Iterable[Path], seconds: float) -> list[RunSummary]:
        """Returns the runs that exist, in the order of `roots`.

        Args:
            roots: The run directories.
            seconds: How long to wait for those that do not answer.
        """
        unique = [Path(os.path.abspath(root)) for root in roots]
        found = []
        for root, answer in self._reads.collect(unique, seconds).items():
            if answer.silent_seconds:
                found.append(_silent(root, answer))
            elif answer.result is not None:
                found.append(answer.result)
        return found


def _summarize_if_exists(root: Path) -> RunSummary | None:
    return summarize_run(root, time.time()) if root.is_dir() else None


def _silent(root: Path, answer: Answer[RunSummary | None]) -> RunSummary:
    seconds = round(answer.silent_seconds)
    words = f"no answer for {seconds} s" if seconds else "no answer yet"
    last = answer.result or RunSummary(
        root=root,
        state=RunState.UNKNOWN,
        step=None,
        total_steps=None,
        loss=None,
        strategy="",
        active_at=0.0,
    )
    return replace(last, state=RunState.UNKNOWN, alerts=(words,))


def _recent() -> RecentRuns:
    directory = state_directory()
    if directory is None:
        return RecentRuns()
    return load_if_exists(directory / _FILE, RecentRuns) or RecentRuns()


def _keep(known: RecentRuns) -> None:
    directory = state_directory()
    if directory is not None:
        make_directory(directory)
        store(directory / _FILE, known, durable=False)


def _step_of_state_file(run: RunDirectory) -> int | None:
    with suppress(OSError, TfckptError):
        state = read_state_file(run.state_file)
        parsed = parse_checkpoint_name(state.latest_name or "") if state is not None else None
        return parsed.step if parsed is not None else None
    return None


def _modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
