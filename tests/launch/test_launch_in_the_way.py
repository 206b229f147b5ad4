"""A worker that dies is started again, whatever a colleague has put into the run directory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import pytest

from accounts import ALICE, BOB, GROUP, acting_as, share
from requirements import needs
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.processes.logs import open_run_log
from tfckpt_trainer.launch.supervision.stop import stop_supervisor
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor
from tfckpt_trainer.rundir.log_times import times_path
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import SupervisorState
from tfckpt_trainer.rundir.run_info import update_run_info
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_trainer.rundir.storage.files import move_aside
from waiting import MOST_SECONDS, wait_until

pytestmark = [pytest.mark.e2e, needs("root")]

SUPERVISE = Path(__file__).parent / "scripts" / "supervise_as.py"

TRAIN = """
echo $$ > "$TFCKPT_RUN_DIR/started-$TFCKPT_ATTEMPT.new"
mv "$TFCKPT_RUN_DIR/started-$TFCKPT_ATTEMPT.new" "$TFCKPT_RUN_DIR/started-$TFCKPT_ATTEMPT"
echo trained
test "$TFCKPT_ATTEMPT" != 0 || exec sleep 600
"""
"""A worker without Python: it is killed in its first start, and ends well in the second."""


def places_of(run: RunDirectory) -> list[Path]:
    """Returns all paths at and below `.tfckpt` that have a name, and those of one worker."""
    named = [
        getattr(run, name)
        for name, value in vars(RunDirectory).items()
        if isinstance(value, cached_property)
    ]
    log = run.worker_log(0)
    of_worker = [log, times_path(log), run.worker_status(0), run.worker_stacks(0)]
    own = [path for path in named if isinstance(path, Path) and run.control in path.parents]
    return [*own, *of_worker]


def files_of(run: RunDirectory) -> list[Path]:
    """Returns the files of a run."""
    others = {*run.directories, run.check_directory, run.copying_directory}
    return [path for path in places_of(run) if path not in others]


def directories_of(run: RunDirectory) -> list[Path]:
    """Returns the directories in which no other one is."""
    parents = {path.parent for path in run.directories}
    return [path for path in run.directories if path not in parents]


PLACES: dict[str, Callable[[RunDirectory], list[Path]]] = {
    "files": files_of,
    "directories": directories_of,
    "directory of the queue": lambda run: [run.inbox.parent],
    "control": lambda run: [run.control],
}


def link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def directory_of_bob(mode: int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.mkdir()
        (path / "kept").touch()
        path.chmod(mode)

    return make


def file_of_bob(mode: int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.touch()
        path.chmod(mode)

    return make


KINDS: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "link": link,
    "loop": lambda path: path.symlink_to(path.name),
    "directory": directory_of_bob(0o755),
    "closed directory": directory_of_bob(0o700),
    "file": file_of_bob(0o644),
    "closed file": file_of_bob(0o600),
}


def put(place: Path, make: Callable[[Path], None]) -> None:
    """Puts something of Bob in a place, as one who may write to the directory can."""
    if os.path.lexists(place):
        place.rename(place.with_name(f"{place.name}.before"))
    make(place)
    os.chown(place, BOB, GROUP, follow_symlinks=False)


@pytest.fixture
def run(open_place: Path) -> RunDirectory:
    """A run directory of Alice, to all of which her group may write."""
    run = RunDirectory(share(open_place))
    with acting_as(ALICE, 0o022):
        run.create()
        update_run_info(run)
    return run


@contextmanager
def supervised(run: RunDirectory) -> Iterator[subprocess.Popen[str]]:
    """Has Alice supervise a run."""
    options = LaunchOptions(
        run_directory=str(run.root),
        command=("/bin/sh", "-c", TRAIN),
        working_directory=str(run.root),
        workers=1,
        pause_seconds=0.05,
        standby=False,
    )
    with acting_as(ALICE):
        store(run.launch_file, options)
    process = subprocess.Popen(
        [sys.executable, str(SUPERVISE), str(ALICE), str(GROUP), str(run.root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
        with acting_as(ALICE):
            stop_supervisor(run, 0.1)


def kill_worker(run: RunDirectory) -> None:
    started = run.root / "started-0"
    wait_until(started.exists, 60, "the first start")
    os.kill(int(started.read_text()), signal.SIGKILL)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", PLACES)
def test_a_killed_worker_is_started_again(run: RunDirectory, where: str, kind: str) -> None:
    with supervised(run) as process:
        wait_until((run.root / "started-0").exists, 60, "the first start")
        for place in PLACES[where](run):
            put(place, KINDS[kind])
        kill_worker(run)
        output, _ = process.communicate(timeout=MOST_SECONDS)
    assert process.returncode == 0, output
    assert (run.root / "started-1").exists(), output
    status = read_supervisor(run)
    assert status is not None and status.restarts == 1
    assert status.state is SupervisorState.FINISHED
    kept = [path for path in run.root.rglob("kept") if path.is_file()]
    assert len(kept) == (len(PLACES[where](run)) if "directory" in kind else 0)
    assert "trained" in run.worker_log(0).read_text()
    assert [e.kind for e in read_entries(run)][-2:] == [EventKind.RESTART, EventKind.FINISH]


def of_bob_in_a_sticky_directory(run: RunDirectory) -> None:
    share(run.logs_directory, BOB).chmod(0o3775)
    put(run.worker_log(0), file_of_bob(0o644))


def nothing_in_a_closed_directory(run: RunDirectory) -> None:
    share(run.logs_directory, BOB).chmod(0o755)


@pytest.mark.parametrize(
    ("hinder", "told", "is_kept"),
    [
        (of_bob_in_a_sticky_directory, "The output goes to worker-0.log.", True),
        (nothing_in_a_closed_directory, "The output is not kept.", False),
    ],
)
def test_a_log_for_which_there_is_no_room_ends_no_run(
    run: RunDirectory, hinder: Callable[[RunDirectory], None], told: str, is_kept: bool
) -> None:
    hinder(run)
    with acting_as(ALICE), open_run_log(run, run.worker_log(0), 1, ["train"]) as log:
        log.write(b"trained\n")
    (note,) = [entry.message for entry in read_entries(run)]
    assert note.startswith(f"{run.worker_log(0)} cannot be written: ")
    assert told in note
    beside = [path.read_text() for path in run.logs_directory.glob("worker-0.log.*")]
    assert ["trained\n" in text for text in beside] == [True] * is_kept


def test_a_log_is_opened_while_others_put_links_in_its_place(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = run.worker_log(0)

    def move_and_put_again(path: Path) -> str:
        name = move_aside(path)
        link(path)
        return name

    link(log)
    monkeypatch.setattr("tfckpt_trainer.rundir.storage.files.move_aside", move_and_put_again)
    with open_run_log(run, log, 1, ["train"]) as opened:
        opened.write(b"trained\n")
    (beside,) = [path for path in run.logs_directory.iterdir() if not path.is_symlink()]
    assert "trained" in beside.read_text()
