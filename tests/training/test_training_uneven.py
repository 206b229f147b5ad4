"""Datasets of unequal length end the run on all workers after the same step."""

from __future__ import annotations

import pytest
from cluster import Cluster

from tfckpt_trainer.rundir.journal import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import Ending, WorkerStatus
from tfckpt_trainer.rundir.statuses import load_status

pytestmark = pytest.mark.tensorflow


def train(place, steps, *arguments, log="log"):
    """Trains to the end; returns the batches of each worker, by step."""
    words = ["--steps", *steps, "--log", place.with_name(log), *arguments]
    with Cluster(place, "uneven.py", words, workers=len(steps)) as cluster:
        assert cluster.wait() == [0] * len(steps), cluster.output()
    logs = [place.with_name(f"{log}-{index}").read_text() for index in range(len(steps))]
    return [dict(line.split(" ", 1) for line in text.splitlines()) for text in logs]


@pytest.mark.parametrize(
    ("steps", "unknown"),
    [([7, 5], []), ([5, 7], ["--unknown"]), ([6, 9, 6], [])],
    ids=["the chief has more", "unknown length, the chief has less", "three workers"],
)
def test_the_run_ends_after_the_last_step_for_which_all_workers_have_data(tmp_path, steps, unknown):
    place = tmp_path / "run"
    batches = train(place, steps, *unknown)
    shortest = min(steps)
    assert [list(worker) for worker in batches] == [
        [str(step) for step in range(1, shortest + 1)] for _ in steps
    ]
    run = RunDirectory(place)
    statuses = [load_status(run.worker_status(i), WorkerStatus) for i in range(len(steps))]
    assert [status.ending for status in statuses] == [Ending.FINISHED] * len(steps)
    entries = read_entries(run)
    assert [entry.kind.value for entry in entries[-3:]] == ["note", "save", "finish"]
    assert {entry.checkpoint for entry in entries} >= {"ckpt-4", f"ckpt-{shortest}"}
    (told,) = [entry for entry in entries if entry.kind.value == "note"]
    assert told.details["dataset_steps"] == [
        {
            "worker": index,
            "read": shortest,
            "total": None if unknown else total,
            "ended": total == shortest,
        }
        for index, total in enumerate(steps)
    ]
    for index, total in enumerate(steps):
        if total == shortest:
            assert f"The dataset of worker {index} has ended after {shortest} st" in told.message


def test_with_parameter_servers_the_run_ends_with_the_dataset_of_the_chief(tmp_path):
    place, log = tmp_path / "run", tmp_path / "log"
    words = ["--steps", 9, "--log", log]
    with Cluster(place, "uneven.py", words, 2, "parameter-server") as cluster:
        assert cluster.processes[0].wait(120) == 0, cluster.output()
    # Nine batches for two workers.
    steps = [line.split()[0] for line in log.with_name("log-0").read_text().splitlines()]
    assert steps == ["1", "2", "3", "4"]
    assert read_entries(RunDirectory(place))[-1].message == "Finished after step 4."


@pytest.mark.parametrize("unknown", [[], ["--unknown"]], ids=["known length", "unknown length"])
def test_a_saved_position_has_no_batch_that_was_read_ahead(tmp_path, unknown):
    whole = train(tmp_path / "whole", [9, 7], *unknown, log="whole-log")
    begun = train(tmp_path / "run", [9, 7], *unknown, "--stop-after", 4, log="begun")
    resumed = train(tmp_path / "run", [9, 7], *unknown, log="resumed")
    for worker in range(2):
        assert list(begun[worker]) == ["1", "2", "3", "4"]
        assert list(resumed[worker]) == ["5", "6", "7"]
        assert begun[worker] | resumed[worker] == whole[worker]
