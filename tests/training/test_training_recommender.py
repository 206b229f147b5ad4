"""A recommender on real clusters, through all that happens to a run: its numbers stay."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest
from kerases import environment_of
from training_cluster import SCRIPTS

from tfckpt_trainer.launch.launcher import launch
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.supervision.stop import stop_supervisor
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor, read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import SupervisorState
from tfckpt_trainer.rundir.records.worker import Activity
from tfckpt_tui import open_checkpoint
from waiting import MOST_SECONDS, wait_until

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.weekly,
    pytest.mark.matrix,
    pytest.mark.needs("tf_keras", "tensorflow_recommenders"),
]

GUARD = "below rate 0.06: save"


class Recommender:
    """The run of one cluster after the other, each with two workers."""

    def __init__(self, root, strategy):
        self.run = RunDirectory(root / "run")
        self._root, self._strategy = root, strategy

    def start(self, servers):
        """Starts a cluster in which all take part, and waits for five steps of it."""
        words = ["--strategy", self._strategy, "--servers", str(servers), "--guard", GUARD]
        words += ["--log", str(self._root / "log")]
        options = LaunchOptions(
            run_directory=str(self.run.root),
            command=(sys.executable, str(SCRIPTS / "recommending.py"), *words),
            working_directory=str(self._root),
            workers=2,
            parameter_servers=servers,
            environment=tuple(environment_of("tf_keras").items()),
            pause_seconds=0.1,
        )
        launch(options)
        self.progress()

    def chief(self):
        """Its heartbeat while it trains; None otherwise."""
        alive = {process.pid for process in read_supervisor(self.run).workers}
        found = read_workers(self.run)
        trains = found and found[0].pid in alive and found[0].last_step_at is not None
        return found[0] if trains and found[0].activity is not Activity.STARTING else None

    def progress(self, *, past=None, not_by=0):
        """Waits until a chief other than the one with this process id has trained some steps."""
        started = past

        def further():
            nonlocal started
            chief = self.chief()
            if chief is None or chief.pid == not_by:
                return None
            started = chief.step if started is None else started
            return chief if chief.step >= started + 5 else None

        return wait_until(further, MOST_SECONDS, "further steps")

    def kill(self, index):
        """Kills a process, and waits until training goes on; returns who was started again."""
        before = [process.pid for process in read_supervisor(self.run).workers]
        os.kill(before[index], signal.SIGKILL)

        def replaced():
            now = [process.pid for process in read_supervisor(self.run).workers]
            return now if len(now) == len(before) and now[index] != before[index] else None

        now = wait_until(replaced, MOST_SECONDS, "another process")
        self.progress()
        return {number for number, pid in enumerate(now) if pid != before[number]}

    def ask(self, kind, **arguments):
        """Sends a command; returns what it did."""
        queue = CommandQueue(self.run)
        command = queue.submit(kind, arguments, requested_by="test", lifetime=MOST_SECONDS)
        outcome = queue.wait(command, timeout=MOST_SECONDS)
        assert outcome.state is CommandState.DONE, outcome
        return outcome.result

    def stop(self):
        """Saves and stops."""
        self.ask(CommandKind.STOP)
        ended = SupervisorState.STOPPED
        wait_until(lambda: read_supervisor(self.run).state is ended, MOST_SECONDS, "the end")

    def steps(self):
        """What each worker logged: losses and the checksum of all variables, by branch and step."""
        for path in self._root.glob("log-*.jsonl"):
            logged = {}
            for branch, step, *bits in map(json.loads, path.read_text().splitlines()):
                logged.setdefault((branch, step), []).append(bits)
            yield logged


@pytest.mark.parametrize(
    ("strategy", "servers"), [("parameter-server", (2, 3, 1)), ("multi-worker", (0, 0))]
)
def test_a_recommender_goes_through_all_that_happens_to_a_run(
    tmp_path, monkeypatch, strategy, servers
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    recommender = Recommender(tmp_path, strategy)
    run = recommender.run
    first, *others = servers
    try:
        recommender.start(first)
        saved = recommender.ask(CommandKind.SAVE)["name"]
        recommender.progress()
        # The restore leaves a checkpoint behind, so a branch begins.
        recommender.ask(CommandKind.SAVE)
        recommender.ask(CommandKind.RESTORE, name=saved)
        recommender.progress()
        everyone = set(range(len(read_supervisor(run).workers)))
        # With parameter servers, the others train on without a worker.
        assert recommender.kill(1) == ({1} if first else everyone)
        for index in everyone - {1, 2, 4}:
            assert recommender.kill(index) == everyone
        recommender.ask(CommandKind.SET, values={"learning_rate": 0.05})

        def saved_by_guard():
            kinds = [entry.kind for entry in read_entries(run)]
            fired = EventKind.GUARD in kinds and kinds[kinds.index(EventKind.GUARD) :]
            return fired and EventKind.SAVE in fired

        wait_until(saved_by_guard, MOST_SECONDS, "what the guard saves")
        recommender.stop()
        for count in others:
            recommender.start(count)
            recommender.stop()
    finally:
        stop_supervisor(run, 30)

    (was_set,) = [entry for entry in read_entries(run) if entry.kind is EventKind.SET]
    newest = max(run.root.glob("*.index"), key=os.path.getmtime).with_suffix("")
    assert open_checkpoint(newest)["model/users/embeddings"].shape == (11, 8)
    for logged in recommender.steps():
        # After the command, steps that had been trained before a death are others.
        same = {place: bits for place, bits in logged.items() if place[1] <= was_set.step}
        again = [bits for bits in same.values() if len(bits) > 1]
        # The steps between a checkpoint and a death.
        assert again
        assert all(one == bits[0] for bits in again for one in bits)
        # Those between the checkpoint that was restored in place, and the restore.
        both = [step for branch, step in same if branch == 1 and (0, step) in same]
        assert both
        assert [same[1, step][0] for step in both] == [same[0, step][0] for step in both]
        # No step is missing, whatever the number of servers was.
        steps = {step for _, step in logged}
        assert steps == set(range(1, max(steps) + 1))
