"""The runs a person had open, and those below a directory: how each is, at a glance."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tfckpt_trainer.bundle.state_file import read_state_file
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.launch.orphans import read_supervisor
from tfckpt_trainer.rundir.documents import Document, load_if_there, store
from tfckpt_trainer.rundir.files import make_directory
from tfckpt_trainer.rundir.health import RunState, read_workers, run_state, worker_state
from tfckpt_trainer.rundir.paths import RunDirectory, parse_checkpoint_name
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.user_directories import state_directory

MOST_RECENT = 50
"""Runs that are remembered."""

MOST_FOUND = 200
"""Runs that are looked for below a directory; more are no list for people."""

_DEPTH = 3
_FILE = "runs.json"


class RecentRuns(Document, frozen=True, kw_only=True):
    """`runs.json` in the state directory: what was opened.

    Attributes:
        directories: Newest first.
        selected: For each the checkpoint that the cursor was on, where it was not the newest.
    """

    directories: list[str] = []
    selected: dict[str, str] = {}


@dataclass(frozen=True)
class RunGlance:
    """One run as a line tells of it.

    Attributes:
        step: Of the chief's last heartbeat, else of the checkpoint that the state file names.
        active_at: When something last happened there, in seconds since the epoch.
    """

    root: Path
    state: RunState
    step: int | None
    total_steps: int | None
    loss: float | None
    strategy: str
    active_at: float


def remember_run(root: Path) -> None:
    """Puts a run first in the list of recent ones; where that cannot be written it is left."""
    path = os.path.abspath(root)
    with suppress(OSError, TfckptError):
        known = _recent()
        others = [other for other in known.directories if other != path]
        _keep(RecentRuns(directories=[path, *others][:MOST_RECENT], selected=known.selected))


def remember_selection(root: Path, name: str | None) -> None:
    """Keeps on which checkpoint of a run the cursor was; None where it was on the newest."""
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
    """Returns on which checkpoint of a run the cursor was; None for the newest."""
    with suppress(OSError, TfckptError):
        return _recent().selected.get(os.path.abspath(root))
    return None


def recent_runs() -> list[Path]:
    """Returns the runs that were opened and are still there, newest first."""
    with suppress(OSError, TfckptError):
        return [Path(known) for known in _recent().directories if os.path.isdir(known)]
    return []


def runs_below(directory: Path) -> list[Path]:
    """Returns the directories with checkpoints at and below `directory`, by name.

    What lies inside a run is part of it, and hidden directories are none.
    """
    found: list[Path] = []
    waiting = [(directory, 0)]
    while waiting and len(found) < MOST_FOUND:
        place, depth = waiting.pop(0)
        run = RunDirectory(place)
        if run.control.is_dir() or run.state_file.is_file():
            found.append(place)
        elif depth < _DEPTH:
            with suppress(OSError), os.scandir(place) as entries:
                names = sorted(
                    entry.name
                    for entry in entries
                    if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
                )
                waiting += [(place / name, depth + 1) for name in names]
    return found


def glance(root: Path, now: float) -> RunGlance:
    """Looks at one run, without its checkpoints."""
    run = RunDirectory(root)
    info, supervisor = None, None
    with suppress(OSError, TfckptError):
        info, supervisor = load_if_there(run.run_file, RunInfo), read_supervisor(run)
    workers = read_workers(run, info.worker_count if info is not None else None)
    state = run_state([(w, worker_state(w, now)) for w in workers], supervisor, now)
    chief = next((worker for worker in workers if worker.index == 0), None)
    return RunGlance(
        root=root,
        state=state,
        step=chief.step if chief is not None else _step_of_state_file(run),
        total_steps=info.total_steps if info is not None else None,
        loss=chief.loss if chief is not None else None,
        strategy=info.strategy if info is not None else "",
        active_at=max(
            _modified_at(run.state_file), *(worker.updated_at for worker in workers), 0.0
        ),
    )


def glances(roots: Iterable[Path], now: float) -> list[RunGlance]:
    """Looks at several runs, each once; the one in which something happened last comes first."""
    unique = dict.fromkeys(Path(os.path.abspath(root)) for root in roots)
    return sorted((glance(root, now) for root in unique), key=lambda one: -one.active_at)


def _recent() -> RecentRuns:
    directory = state_directory()
    if directory is None:
        return RecentRuns()
    return load_if_there(directory / _FILE, RecentRuns) or RecentRuns()


def _keep(known: RecentRuns) -> None:
    directory = state_directory()
    if directory is not None:
        make_directory(directory)
        store(directory / _FILE, known, durable=False)


def _step_of_state_file(run: RunDirectory) -> int | None:
    with suppress(OSError, TfckptError):
        state = read_state_file(run.state_file)
        said = parse_checkpoint_name(state.latest_name or "") if state is not None else None
        return said.step if said is not None else None
    return None


def _modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
