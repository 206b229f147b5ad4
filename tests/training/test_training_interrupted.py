"""Ctrl+c saves and stops; a second one ends at once."""

from __future__ import annotations

import signal

import pytest
from training_cluster import Cluster

from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.heartbeats.reading import read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from waiting import MOST_SECONDS, wait_until
from weekly import weekly

pytestmark = pytest.mark.tensorflow


def wait_for_steps(run: RunDirectory, count: int = 1) -> None:
    def all_train() -> bool:
        workers = read_workers(run)
        return len(workers) == count and all(worker.step > 2 for worker in workers)

    wait_until(all_train, 120, "steps")


def saved(run: RunDirectory) -> list[str]:
    return sorted(path.stem for path in run.root.glob("*.index"))


@pytest.mark.parametrize(
    ("words", "strategy"),
    [([], "one-device"), (["--fit"], "one-device"), *weekly(([], "mirrored"))],
)
def test_ctrl_c_saves_and_ends_as_ctrl_c_does(tmp_path, words, strategy):
    words = ["--steps", "100000", *words]
    with Cluster(tmp_path / "run", "interrupted.py", words, 1, strategy) as cluster:
        run = RunDirectory(cluster.run_dir)
        wait_for_steps(run)
        cluster.processes[0].send_signal(signal.SIGINT)
        assert cluster.wait() == [-signal.SIGINT], cluster.output()
    output = cluster.log(0).read_text()
    assert "Saving after this step, then stopping. Press ctrl+c again" in output
    assert "the code after" not in output
    assert "Traceback" not in output
    (chief,) = read_workers(run)
    assert saved(run) == [f"ckpt-{chief.step}"]
    stop = read_entries(run)[-1]
    assert stop.kind is EventKind.STOP
    assert stop.message == f"Stopped after step {chief.step:,} (interrupted with ctrl+c)."


def test_a_second_ctrl_c_ends_at_once(tmp_path):
    words = ["--steps", "100000"]
    with Cluster(tmp_path / "run", "interrupted.py", words, 1, "one-device") as cluster:
        (process,) = cluster.processes
        wait_for_steps(RunDirectory(cluster.run_dir))
        process.send_signal(signal.SIGSTOP)
        # The first comes in the middle of a step; both are there before the next.
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: "Press ctrl+c again" in cluster.output(), 60, "an answer to the first")
        process.send_signal(signal.SIGINT)
        assert cluster.wait(MOST_SECONDS) == [-signal.SIGINT], cluster.output()


def test_ctrl_c_on_one_worker_saves_on_all(tmp_path):
    with Cluster(tmp_path / "run", "interrupted.py", ["--steps", "100000"]) as cluster:
        run = RunDirectory(cluster.run_dir)
        wait_for_steps(run, 2)
        cluster.processes[1].send_signal(signal.SIGINT)
        statuses = cluster.wait()
        assert statuses[0] == 143, cluster.output()
        assert statuses[1] in {130, -signal.SIGINT}, cluster.output()
        assert len(saved(run)) == 1
