"""Two trainers in one directory, where the file system does not share locks."""

from __future__ import annotations

import signal

import pytest
from steered import SteeredRun
from training_cluster import Cluster

from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from waiting import MOST_SECONDS

pytestmark = pytest.mark.tensorflow


def test_a_second_trainer_is_refused_by_the_heartbeat_of_the_first(tmp_path):
    with Cluster(tmp_path / "run", "steered.py", [], 1, "one-device") as first:
        run = SteeredRun(first)
        run.wait_for_step(5)
        # The second one locks another file of that name, as on a client of its own.
        run.run.trainer_lock.unlink()
        with Cluster(tmp_path / "run", "steered.py", [], 1, "one-device") as second:
            assert second.wait(MOST_SECONDS) == [1], second.output()
            assert "writes heartbeats. Stop it with `tfckpt-tui stop" in second.output()
        # It tells of its own end nowhere: not as the other one's, and not in its journal.
        run.progress()
        assert "failed" not in run.event_log()
        assert run.ask(CommandKind.SAVE).state is CommandState.DONE
        first.processes[0].send_signal(signal.SIGKILL)
        first.processes[0].wait()
        # What it left says that it trains; its process is gone.
        with Cluster(tmp_path / "run", "steered.py", ["--steps", "10"], 1, "one-device") as third:
            assert third.wait(MOST_SECONDS) == [0], third.output()
