"""All state that a script passes is found and restored exactly, whatever holds it."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
from training_cluster import Cluster

from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.storage.documents import load
from weekly import weekly

pytestmark = pytest.mark.tensorflow

STEPS, SAVED = 18, 10

PARTS = [
    "losses", "recurrent", "generator", "discriminator", "wrapped", "optimizers", "mean", "seen",
    "listed", "shift", "curriculum", "words",
]  # fmt: skip


def lines_of(log, worker):
    text = log.with_name(f"{log.name}-{worker}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


@dataclass
class Passes:
    """The steps after a save, by worker: the first time, and after each kind of restore."""

    never_stopped: list[dict]
    again: list[dict[str, dict]]
    run_dir: Path
    in_parts: bool


@pytest.fixture(
    scope="module",
    params=[
        ("mirrored", 1, ()),
        *weekly((("multi-worker", 2, ()),), (("multi-worker", 2, ("--in-parts",)),)),
    ],
    ids=["mirrored", "workers", "workers-in-parts"],
)
def passes(request, tmp_path_factory):
    strategy, workers, how = request.param
    place = tmp_path_factory.mktemp("everything")

    def cluster(log, *arguments):
        words = ["--log", str(log), *arguments, *how]
        return Cluster(place / "run", "everything.py", words, workers, strategy)

    with cluster(place / "first") as first:
        assert set(first.wait()) <= {-signal.SIGKILL}, first.output()
    with cluster(place / "cold", "--restart") as cold:
        assert cold.wait() == [0] * workers, cold.output()
    found = Passes([], [], place / "run", bool(how))
    for worker in range(workers):
        lines = lines_of(place / "first", worker)
        found.never_stopped.append(
            {e["step"]: e for e in lines if e["pass"] == 0 and e["step"] > SAVED}
        )
        restored = {e["step"]: e for e in lines if e["pass"] == 1}
        resumed = {e["step"]: e for e in lines_of(place / "cold", worker)}
        found.again.append({"in place": restored, "cold": resumed})
    return found


@pytest.mark.parametrize("part", PARTS)
def test_each_part_of_the_state_is_exact_after_a_restore(passes, part):
    for worker, again in enumerate(passes.again):
        for how, steps in again.items():
            assert list(steps) == list(range(SAVED + 1, STEPS + 1)), how
            for step, entry in steps.items():
                expected = passes.never_stopped[worker][step][part]
                assert entry[part] == expected, f"{how}, worker {worker}, step {step}"


def test_what_differs_is_measured_and_stored_by_each_worker(passes):
    run = RunDirectory(passes.run_dir)
    record = load(run.record(f"ckpt-{SAVED}"), CheckpointRecord)
    own = set(record.per_worker)
    assert {"metrics/mean/total", "shift", "listed/0"} <= own
    # Equal on all replicas: weights, slots and what all workers draw alike.
    assert not {path for path in own if "kernel" in path or path.startswith("optimizer/")}
    of_second_model = {path for path in own if path.startswith("model/discriminator/")}
    assert any(path.endswith("moving_mean") for path in of_second_model)
    with_workers = len(record.workers) > 1
    assert ("own_noise/_state_var" in own) == with_workers
    assert "seeds" in record.contents
    restored = [e for e in read_entries(run) if e.kind.value in {"start", "restore"} and e.step]
    # Once in place and once cold; again for each further restore.
    assert len(restored) >= 2
    for entry in restored:
        assert entry.details["left_out"] == []


def test_another_topology_starts_from_the_shared_values_and_says_so(passes, tmp_path):
    if passes.in_parts:
        pytest.skip("the same change without parts is enough")
    words = ["--log", str(tmp_path / "log"), "--restart"]
    fewer = "mirrored" if passes.never_stopped[1:] else "one-device"
    with Cluster(passes.run_dir, "everything.py", words, 1, fewer) as other:
        assert other.wait() == [0], other.output()
    start = [e for e in read_entries(RunDirectory(passes.run_dir)) if e.kind.value == "start"][-1]
    assert start.step == STEPS
    assert start.details["left_out"] == []
    note = " ".join(start.details["notes"])
    assert "another number of workers or replicas" in note
    assert "values differed between replicas and start from the shared value" in note
