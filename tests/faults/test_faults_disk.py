"""A disk that refuses: training goes on, and what is told of it stays true."""

from __future__ import annotations

import pytest
from steered import SteeredRun
from training_cluster import Cluster

from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.worker import WorkerStatus
from tfckpt_trainer.rundir.storage.documents import load
from waiting import wait_until

pytestmark = pytest.mark.tensorflow


def test_heartbeats_go_on_where_another_file_cannot_be_written(tmp_path):
    with Cluster(tmp_path / "run", "steered.py", [], 1, "one-device") as cluster:
        run = SteeredRun(cluster)
        run.wait_for_step(5)
        for number, file in enumerate(("series.jsonl", "journal.jsonl"), 1):
            path = run.run.control / file
            path.rename(path.with_name(f"aside-{number}"))
            path.mkdir()
            for kind in (CommandKind.PAUSE, CommandKind.RESUME):
                assert run.ask(kind).state is CommandState.DONE
            told = wait_until(lambda: trouble(run), 20, "a heartbeat that tells of it")
            # Two more: it was not the last one.
            for _ in range(2):
                before = run.workers()[0].updated_at
                wait_until(lambda at=before: run.workers()[0].updated_at > at, 20, "a heartbeat")
            assert run.workers()[0].step > told.step

            # A save moves the directory aside, and needs neither file.
            assert run.ask(CommandKind.SAVE).state is CommandState.DONE
            wait_until(lambda: run.workers()[0].detail == "", 20, "a heartbeat without trouble")
            assert path.is_file()
            saves = [entry for entry in read_entries(run.run) if entry.kind is EventKind.SAVE]
            assert len(saves) == 1


def trouble(run: SteeredRun) -> WorkerStatus | None:
    (worker,) = run.workers()
    return worker if "jsonl: Is a directory" in worker.detail else None


@pytest.mark.parametrize("how", [[], ["--largest-shard", "200"]], ids=["whole", "in shards"])
def test_all_that_a_commit_relies_on_is_flushed_before_it(tmp_path, how):
    trace = tmp_path / "trace"
    arguments = ["--save-every", "10", "--steps", "10", "--trace", str(trace), *how]
    with Cluster(tmp_path / "run", "steered.py", arguments, 1, "one-device") as cluster:
        assert cluster.wait() == [0], cluster.output()
    lines = trace.read_text().splitlines()
    manifest = [n for n, line in enumerate(lines) if line == "rename .tfckpt/saving/ckpt-10.json"]
    assert len(manifest) == 2
    before = lines[: manifest[1]]
    own = ".tfckpt/workers/ckpt-10"
    for path in (f"{own}/worker-0.index", f"{own}/worker-0.json", own, ".tfckpt/workers"):
        assert f"flush {path}" in before, path
    record = load(RunDirectory(tmp_path / "run").record("ckpt-10"), CheckpointRecord)
    for facts in record.files:
        path = facts.name if "/" in facts.name else f".tfckpt/saving/{facts.name}"
        flushed = before.index(f"flush {path}")
        assert f"flush {path.rpartition('/')[0]}" in before[flushed:], path

    after = lines[manifest[1] :]
    committed = after.index("rename ckpt-10.index")
    data = max(n for n, line in enumerate(after) if line.startswith("rename ckpt-10.data"))
    assert data < after.index("flush .", data) < committed
    assert "flush .tfckpt/records" in after[:committed]
    assert "flush ." in after[committed:]


def test_a_line_of_the_journal_that_cannot_be_flushed_is_written_once(tmp_path):
    arguments = ["--save-every", "10", "--steps", "20", "--refuse-journal", "3"]
    with Cluster(tmp_path / "run", "steered.py", arguments, 1, "one-device") as cluster:
        run = SteeredRun(cluster)
        assert cluster.wait() == [0], cluster.output()
    kinds = [entry.kind for entry in read_entries(run.run)]
    assert kinds == [EventKind.START, EventKind.SAVE, EventKind.SAVE, EventKind.FINISH]


def test_a_flush_refused_after_the_commit_is_told_beside_the_checkpoint(tmp_path):
    arguments = ["--save-every", "10", "--steps", "30", "--refuse-flush", "20"]
    with Cluster(tmp_path / "run", "steered.py", arguments, 1, "one-device") as cluster:
        run = SteeredRun(cluster)
        assert cluster.wait() == [0], cluster.output()
    assert run.names() == {"ckpt-10", "ckpt-20", "ckpt-30"}
    records = [load(run.run.record(name), CheckpointRecord) for name in sorted(run.names())]
    sequences = [record.sequence for record in records]
    assert sequences == sorted(set(sequences))
    assert [record.parent for record in records] == [None, "ckpt-10", "ckpt-20"]
    told = {entry.checkpoint: entry for entry in read_entries(run.run) if entry.checkpoint}
    assert {entry.kind for entry in told.values()} == {EventKind.SAVE}
    assert "It could not be flushed" in told["ckpt-20"].message
    assert "flushed to disk" not in told["ckpt-20"].message
    assert "verified and flushed to disk." in told["ckpt-30"].message
