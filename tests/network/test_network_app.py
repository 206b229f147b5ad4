"""What the app asks the server of a network disk, and what it sees at once all the same."""

from __future__ import annotations

import time

import pytest

from faulty_file_system import FaultyMount
from many_workers import ManyWorkers
from tfckpt_trainer.catalog.directory.pins import pin
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.event_log import note_event
from tfckpt_trainer.rundir.heartbeats.gathered import GATHERED_SECONDS, READ_EACH_SECOND
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from tfckpt_tui.services.runs.file_changes import LOOK_SECONDS

# Each client is a process of its own.
pytestmark = pytest.mark.e2e

COUNT = 64
SETTLED_SECONDS = 100


class Watched:
    """A run of many workers that an app on another machine watches; time goes by in looks."""

    def __init__(self, place: RunDirectory, here: RunDirectory, there: FaultyMount) -> None:
        # Later than all files, so that these count as settled.
        self.now = time.time() + SETTLED_SECONDS
        self.here = here
        self._there = there
        self._workers = ManyWorkers(place, here, COUNT, self.now)
        self._reader = SnapshotReader(RunDirectory(there.root / here.root.name))
        for _ in range(COUNT // READ_EACH_SECOND + round(GATHERED_SECONDS)):
            self.look()

    def save(self, name: str) -> None:
        """Writes the files of a checkpoint on the first machine."""
        for suffix in ("index", "data-00000-of-00001"):
            (self.here.root / f"{name}.{suffix}").write_bytes(b"x")
        note_event(self.here, EventKind.SAVE, "Saved.", checkpoint=name)

    def look(self, *, anew: bool = False) -> tuple[RunSnapshot, int]:
        """Returns what the app shows a second later, and how many calls that took."""
        self.now += 1
        self._workers.beat(self.now)
        self._there.count_calls()
        return self._reader.read(self.now, anew=anew), self._there.count_calls().total()


@pytest.fixture
def watched(places) -> Watched:
    return Watched(*places)


def test_most_looks_ask_for_a_heartbeat_and_the_event_log(watched):
    count = round(LOOK_SECONDS)
    calls = sorted(watched.look()[1] for _ in range(5 * count))
    assert 2 * calls[5 * (count - 1) - 1] < calls[5 * (count - 1)], calls


def test_a_save_is_shown_at_the_next_look(watched):
    watched.look()
    watched.save("ckpt-7")
    snapshot, _ = watched.look()
    assert [checkpoint.name for checkpoint in snapshot.checkpoints] == ["ckpt-7"]
    assert snapshot.event_log[-1].kind is EventKind.SAVE


def test_a_command_of_somebody_else_is_shown_at_the_next_look(watched):
    watched.look()
    command = CommandQueue(watched.here).submit(CommandKind.SAVE, requested_by="test")
    snapshot, _ = watched.look()
    assert [waiting.id for waiting in snapshot.pending] == [command.id]


def test_charts_are_a_few_seconds_old_at_most(watched):
    for _ in range(2 * round(LOOK_SECONDS)):
        snapshot, _ = watched.look()
        newest = snapshot.samples.newest
        assert newest is not None
        assert watched.now - newest.at < LOOK_SECONDS


def test_whoever_did_something_sees_it_at_once(watched):
    watched.save("ckpt-7")
    watched.look()
    pin(watched.here, "ckpt-7")
    snapshot, _ = watched.look(anew=True)
    assert [checkpoint.pinned for checkpoint in snapshot.checkpoints] == [True]
