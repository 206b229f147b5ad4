"""Another number of workers, or another strategy, than saved: shared state comes back exactly."""

from __future__ import annotations

import pytest
from steered import SteeredRun
from training_cluster import Cluster

from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from weekly import weekly

pytestmark = pytest.mark.tensorflow

TAKEN_OVER = [
    (("one-device", 1), ("multi-worker", 2)),
    *weekly(
        (("multi-worker", 2), ("multi-worker", 3)),
        (("multi-worker", 3), ("one-device", 1)),
        (("mirrored", 1), ("multi-worker", 2)),
        (("one-device", 1), ("mirrored", 1)),
    ),
]
"""From two workers to one: `test_sigterm_to_one_worker_saves_once_and_ends_all`."""


def cluster(tmp_path, world, *arguments):
    strategy, workers = world
    return Cluster(tmp_path / "run", "steered.py", list(arguments), workers, strategy)


@pytest.mark.parametrize(("before", "after"), TAKEN_OVER)
def test_the_shared_state_comes_back_exactly_and_what_begins_anew_is_said(tmp_path, before, after):
    with cluster(tmp_path, before, "--steps", "10") as first:
        assert first.wait() == [0] * before[1], first.output()
    with cluster(tmp_path, after) as second:
        run = SteeredRun(second)
        run.wait_for_step(12)
        restored = run.ask(CommandKind.RESTORE, name="ckpt-10")
        assert restored.state is CommandState.DONE, restored.message
        assert restored.result["workers"] == after[1]
        assert restored.result["variables"] > 8
        run.progress()
        assert run.ask(CommandKind.STOP).state is CommandState.DONE
        assert second.wait() == [0] * after[1], second.output()
    entry = [e for e in read_entries(run.run) if e.kind.value == "restore"][-1]
    assert len(entry.details["notes"]) == after[1]
    assert all("start over" in note for note in entry.details["notes"])
    assert "Input position and random state start over because" in entry.message
