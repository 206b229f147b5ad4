"""Asynchronous steps with parameter servers: what acts between steps acts when all are applied."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest
from kerases import environment_of
from steered import SteeredRun
from training_cluster import SCRIPTS, Cluster

from tfckpt_trainer.launch.launcher import launch
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.supervision.stop import stop_supervisor
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.heartbeats.reading import read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.records.worker import Activity
from tfckpt_trainer.rundir.storage.documents import load
from tfckpt_tui import open_checkpoint
from waiting import MOST_SECONDS, wait_until

pytestmark = pytest.mark.tensorflow

of_keras_2 = pytest.mark.needs("tf_keras")


def counting(root, *words, keras="tf_keras", workers=2, servers=2):
    return Cluster(
        root,
        "counting.py",
        list(words),
        workers,
        "parameter-server",
        environment_of(keras),
        parameter_servers=servers,
    )


def counted(path):
    """Step, count, optimizer's count, weight and sum of a checkpoint."""
    checkpoint = open_checkpoint(path)
    names = ("step", "model/counts/steps", "optimizer/_iterations", "model/counts/weight")
    if "optimizer/_iterations" not in checkpoint:
        names = ("step", "model/counts/steps", "optimizer/iter", "model/counts/weight")
    return [int(checkpoint[name]) for name in (*names, "model/counts/sum")]


def exact(step):
    """The same if each of so many steps was applied once, with the batch that has its number."""
    return [step, step, step, step, step * (step - 1) // 2]


@of_keras_2
@pytest.mark.parametrize(
    "words", [("--own-schedule",), ("--silent", "--legacy", "--steps-per-call", "100")]
)
def test_steps_that_nobody_looks_at_are_waited_for(tmp_path, words):
    root = tmp_path / "run"
    words = [*words, "--call-seconds", "0", "--steps", "330", "--save-every", "100"]
    with counting(root, *words) as cluster:
        assert set(cluster.wait()) == {0}, cluster.output()
    for step in (100, 200, 300, 330):
        assert counted(root / f"ckpt-{step}") == exact(step)


@of_keras_2
def test_each_checkpoint_has_all_steps_before_it_and_none_after(tmp_path):
    root = tmp_path / "run"
    with counting(root, "--guard", "above number 300: save, pause; at most 1") as cluster:
        run = SteeredRun(cluster)
        run.wait_for_step(60)
        shares = {(one.job, one.task): one for one in run.workers()[0].shares}
        # The two servers hold a count of each kind; the chief its own variables.
        held = [shares["ps", task].variable_bytes for task in (0, 1)]
        assert sum(held) == 36
        assert all(shares["worker", task].steps_per_second > 0 for task in (0, 1))
        saved = run.ask(CommandKind.SAVE)
        assert saved.state is CommandState.DONE, saved.message
        back = run.ask(CommandKind.RESTORE, name="ckpt-50")
        assert back.state is CommandState.DONE, back.message
        run.progress()
        # The step is known in the call after its own; that of the next flag acts.
        paused = run.wait_until_paused()
        assert 302 <= paused.step <= 302 + 30
        assert counted(root / f"ckpt-b1-{paused.step}") == exact(paused.step)
        assert run.ask(CommandKind.SET, values={"learning_rate": 2.0}).state is CommandState.DONE
        assert run.ask(CommandKind.RESUME).state is CommandState.DONE
        run.progress()
        os.kill(cluster.processes[0].pid, signal.SIGTERM)
        assert cluster.wait() == [143, 0, 0, 0, 0], cluster.output()
    exactness = load(RunDirectory(root).run_file, RunInfo).exactness
    assert any("Leave asynchronous=True out" in remedy for remedy in exactness.remedies)
    paths = {path.with_suffix("") for path in root.glob("ckpt-*.index")}
    found = {path: counted(path) for path in paths}
    before = {path: values for path, values in found.items() if values[0] <= paused.step}
    assert {"ckpt-50", saved.result["name"]} <= {path.name for path in before}
    for path, values in before.items():
        assert values == exact(values[0]), path
    for path in paths - before.keys():
        step, *values = found[path]
        # The rate was doubled at the pause.
        expected = exact(step)[1:]
        expected[2] += step - paused.step
        assert values == expected, path
    assert paths - before.keys()


@of_keras_2
def test_the_chief_applies_the_sum_of_gradients_by_default(tmp_path):
    root = tmp_path / "run"
    with counting(root, "--synchronous", "--steps", "20", "--save-every", "20") as cluster:
        assert set(cluster.wait()) == {0}, cluster.output()
    step, computed, applied, weight, total = counted(root / "ckpt-20")
    # Each worker computes its part of a step; the optimizer applies one.
    assert [step, computed, applied, weight, total] == [20, 40, 20, 20, 40 * 39 // 2]


def test_optimizers_of_keras_3_are_refused_with_the_way_out(tmp_path):
    with counting(tmp_path / "run", keras="keras", workers=1, servers=1) as cluster:
        assert cluster.wait() == [1, 0, 0], cluster.output()
        assert "the SGD of Keras 3: it reads a variable and then writes it" in cluster.output()
        assert "TF_USE_LEGACY_KERAS=1" in cluster.output()


def test_a_value_whose_worker_dies_before_the_chief_has_it_is_computed_again():
    import tensorflow as tf

    from tfckpt_trainer.training.steps.parameter_server_step import fetched

    class Lost:
        """A value that another worker has computed again after a join."""

        joined = False

        def fetch(self):
            if not self.joined:
                raise tf.errors.UnavailableError(None, None, "Connection reset by peer")
            return 3.0

        def join(self):
            self.joined = True

    lost = Lost()
    assert fetched(lost, lost) == 3.0


@of_keras_2
def test_an_error_of_a_step_ends_the_run_with_that_error(tmp_path):
    run = RunDirectory(tmp_path / "run")
    with counting(run.root, "--wrong-at", "75", servers=1) as cluster:
        assert cluster.wait() == [1, 0, 0, 0], cluster.output()
    *_, failed = [entry for entry in read_entries(run) if entry.kind is EventKind.FAILED]
    assert "a wrong batch" in failed.message
    assert counted(run.root / "ckpt-50") == exact(50)


@of_keras_2
def test_without_a_worker_the_others_train_on_and_without_a_server_all_start_again(tmp_path):
    run = RunDirectory(tmp_path / "run")
    script = [str(SCRIPTS / "counting.py"), "--strategy", "parameter-server"]
    options = LaunchOptions(
        run_directory=str(run.root),
        command=(sys.executable, *script),
        working_directory=str(tmp_path),
        workers=2,
        parameter_servers=2,
        environment=tuple(environment_of("tf_keras").items()),
        pause_seconds=0.1,
    )
    chief, worker, server = 0, 1, 3
    launch(options)
    try:

        def trained(past, *, other_than=0):
            found = read_workers(run)
            trains = found and found[chief].step > past and found[chief].last_step_at is not None
            return found if trains and found[chief].pid != other_than else None

        before = wait_until(lambda: trained(60), MOST_SECONDS, "steps")
        os.kill(before[worker].pid, signal.SIGKILL)

        def serves_again():
            found = read_workers(run)
            pids = {one.index: one.pid for one in found if one.activity is Activity.SERVING}
            return pids.get(worker) not in {None, before[worker].pid}

        wait_until(serves_again, MOST_SECONDS, "another worker")
        past = read_workers(run)[chief].step
        after = wait_until(lambda: trained(past + 100), MOST_SECONDS, "further steps")
        assert after[chief].pid == before[chief].pid
        os.kill(before[server].pid, signal.SIGKILL)
        wait_until(lambda: trained(past + 100, other_than=after[chief].pid), 90, "a restart")
    finally:
        stop_supervisor(run, 30)
    lost = [entry for entry in read_entries(run) if entry.kind is EventKind.WORKER_LOST]
    assert [e.details["worker"] for e in lost if e.by == "supervisor"] == [worker, server]
    assert "The others train on" in lost[0].message
    for path in run.root.glob("ckpt-*.index"):
        # A step that the worker was in when it died is begun again, and never left out.
        step, *values, total = counted(path.with_suffix(""))
        assert all(step <= value <= step + 1 for value in values), path
        assert total >= exact(step)[-1]


def fitted(root, *words, keras="tf_keras"):
    environment = environment_of(keras)
    return Cluster(root, "fitted_on_servers.py", list(words), 2, "parameter-server", environment)


@of_keras_2
def test_fit_trains_each_batch_once_in_each_epoch(tmp_path):
    root = tmp_path / "run"
    with fitted(root, "--die-at", "1") as cluster:
        assert cluster.wait() == [-signal.SIGKILL, 0, 0, 0], cluster.output()
    with fitted(root) as cluster:
        assert cluster.wait() == [0, 0, 0, 0], cluster.output()
        (line,) = [line for line in cluster.output().splitlines() if line.startswith("history")]
    history = json.loads(line.removeprefix("history"))
    assert history["numbers"] == history["val_numbers"] == [sum(range(80))] * 3
    assert history["loss"][-1] < history["loss"][0]
    names = {path.stem for path in root.glob("ckpt-*.index")}
    assert {"ckpt-25", "ckpt-50", "ckpt-75", "ckpt-100", "ckpt-120"} <= names
    for name in names:
        checkpoint = open_checkpoint(root / name)
        assert int(checkpoint["optimizer/_iterations"]) == int(checkpoint["step"])


@pytest.mark.parametrize(
    ("keras", "words", "message"),
    [
        ("keras", [], "fit supports parameter servers with Keras 2 only"),
        pytest.param(
            "tf_keras", ["--synchronous"], "the steps of fit are asynchronous", marks=of_keras_2
        ),
    ],
)
def test_fit_refuses_what_loses_updates(tmp_path, keras, words, message):
    with fitted(tmp_path / "run", *words, keras=keras) as cluster:
        assert cluster.wait() == [1, 0, 0, 0], cluster.output()
        assert message in cluster.output()
