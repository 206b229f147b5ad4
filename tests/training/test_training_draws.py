"""Draws that are a function of the step: exact after a restore, and as random as before."""

from __future__ import annotations

import json
import signal

import pytest
from kerases import KERAS_3, environment_of
from training_cluster import Cluster

from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.exactness import ExactnessLevel
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import load
from waiting import MOST_SECONDS
from weekly import weekly

pytestmark = pytest.mark.tensorflow


def attempts(log, worker):
    """Each attempt that a worker logged, as the lines by step: a restore begins another one."""
    found = [{}]
    for text in log.with_name(f"{log.name}-{worker}.jsonl").read_text().splitlines():
        line = json.loads(text)
        if line["step"] <= max(found[-1], default=0):
            found.append({})
        found[-1][line["step"]] = line
    return found


def exactness_of_run(directory):
    """What `status` says about resuming."""
    return load(RunDirectory(directory).run_file, RunInfo).exactness


def train(tmp_path, script, strategy, workers, seed, *, resumes=True, go_back_at=7, keras=KERAS_3):
    """Trains, goes back in place and is killed; unless told otherwise, resumes.

    Returns the attempts of each worker.
    """
    run, log, environment = tmp_path / "run", tmp_path / "log", environment_of(keras)
    arguments = ["--log", str(log), *(["--random-seed", str(seed)] if seed is not None else [])]
    first = [*arguments, "--go-back-at", str(go_back_at)]
    with Cluster(run, script, first, workers, strategy, environment) as cluster:
        assert -signal.SIGKILL in cluster.wait(), cluster.output()
    if resumes:
        with Cluster(run, script, arguments, workers, strategy, environment) as cluster:
            assert cluster.wait() == [0] * workers, cluster.output()
    return [attempts(log, worker) for worker in range(workers)]


def assert_resumed_exactly(workers):
    """Compares the attempts of each worker, in place and in a new process."""
    for first, in_place, cold in workers:
        assert [*first][:7] == [1, 2, 3, 4, 5, 6, 7]
        assert [*in_place][:5] == [5, 6, 7, 8, 9]
        assert [*cold] == [9, 10, 11, 12]
        assert [in_place[step] for step in (5, 6, 7)] == [first[step] for step in (5, 6, 7)]
        assert cold[9] == in_place[9]


@pytest.mark.parametrize(
    ("script", "strategy", "workers"),
    [
        ("ported_vae.py", "one-device", 1),
        *weekly(
            ("ported_dcgan.py", "one-device", 1),
            ("ported_dcgan.py", "multi-worker", 2),
            ("ported_wgan_gp.py", "one-device", 1),
            ("ported_wgan_gp.py", "multi-worker", 2),
            ("ported_vae.py", "multi-worker", 2),
            ("ported_vae.py", "mirrored", 1),
        ),
    ],
)
def test_a_public_script_that_draws_resumes_exactly(tmp_path, script, strategy, workers):
    assert_resumed_exactly(train(tmp_path, script, strategy, workers, seed=7))
    found = exactness_of_run(tmp_path / "run")
    assert found.level is ExactnessLevel.EXPECTED, found.words


@pytest.mark.weekly
@pytest.mark.parametrize(("strategy", "workers"), [("one-device", 1), ("multi-worker", 2)])
def test_an_environment_in_python_resumes_exactly_if_it_is_passed(tmp_path, strategy, workers):
    assert_resumed_exactly(train(tmp_path, "ported_actor_critic.py", strategy, workers, seed=7))
    found = exactness_of_run(tmp_path / "run")
    assert found.level is ExactnessLevel.UNKNOWN
    assert "tf.numpy_function at ported_actor_critic.py:" in found.words


@pytest.mark.weekly  # `test_training_quick_check.py` shows it of a step.
@pytest.mark.parametrize("script", ["ported_vae.py", "ported_actor_critic.py"])
def test_without_a_seed_the_same_script_does_not(tmp_path, script):
    [(first, in_place)] = train(tmp_path, script, "one-device", 1, seed=None, resumes=False)
    assert in_place[5] != first[5]
    assert exactness_of_run(tmp_path / "run").level is ExactnessLevel.NOT_POSSIBLE


def test_parameter_servers_are_refused(tmp_path):
    arguments = ["--log", str(tmp_path / "log"), "--random-seed", "7"]
    with Cluster(tmp_path / "run", "ported_vae.py", arguments, 1, "parameter-server") as cluster:
        assert cluster.processes[0].wait(MOST_SECONDS) == 1
        assert "random_seed does not support ParameterServerStrategy." in cluster.output()
