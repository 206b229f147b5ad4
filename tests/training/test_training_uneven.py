"""Datasets of unequal length end the run on all workers after the same step."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from kerases import KERAS_2, KERAS_3, environment_of
from training_cluster import Cluster

from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.heartbeats.status_files import load_status
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import Ending, WorkerStatus
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.services.control.restore import choose_start
from waiting import MOST_SECONDS
from weekly import weekly

pytestmark = pytest.mark.tensorflow


def train(place, steps, *arguments, log="log", keras=KERAS_3):
    """Trains to the end; returns what each worker logged, by step; the last time."""
    words = ["--steps", *steps, "--log", place.with_name(log), *arguments]
    environment = environment_of(keras)
    with Cluster(place, "uneven.py", words, len(steps), environment=environment) as cluster:
        assert cluster.wait() == [0] * len(steps), cluster.output()
    return [logged(place.with_name(f"{log}-{index}")) for index in range(len(steps))]


def logged(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {line["step"]: line for line in lines}


@pytest.fixture(scope="module")
def went_back(tmp_path_factory):
    """A run of unknown length whose chief has less, and goes back once; and its directory."""
    place = tmp_path_factory.mktemp("went-back") / "run"
    return place, train(place, [10, 12], "--unknown", "--restore-at", 6)


def again_after_step_4(of, place, steps, *arguments, **options):
    """Trains the steps after the fourth again, in a copy of a run; returns what is logged."""
    shutil.copytree(of, place)
    choose_start(RunDirectory(place), "ckpt-4", through=FrontEnd.COMMAND_LINE)
    return train(place, steps, *arguments, **options)


def assert_ended_together(place, batches, steps, *, unknown):
    """Asserts that all workers ended after the last step for which all have data, and said why."""
    shortest = min(steps)
    assert [list(worker) for worker in batches] == [list(range(1, shortest + 1)) for _ in steps]
    run = RunDirectory(place)
    statuses = [load_status(run.worker_status(i), WorkerStatus) for i in range(len(steps))]
    assert [status.ending for status in statuses] == [Ending.FINISHED] * len(steps)
    entries = read_entries(run)
    assert [entry.kind.value for entry in entries[-3:]] == ["note", "save", "finish"]
    saved = {entry.step for entry in entries if entry.kind.value == "save"}
    assert {4, shortest} <= saved
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


def test_the_run_ends_after_the_last_step_for_which_all_workers_have_data(went_back):
    assert_ended_together(*went_back, [10, 12], unknown=True)


@pytest.mark.weekly
def test_three_workers_end_together_if_two_have_less_than_the_chief(tmp_path):
    place = tmp_path / "run"
    assert_ended_together(place, train(place, [9, 6, 6]), [9, 6, 6], unknown=False)


def test_a_position_that_fits_on_one_worker_only_is_used_by_none(went_back, tmp_path):
    words = ["--unknown", "--stop-after", 6, "--changed", 1]
    resumed = again_after_step_4(went_back[0], tmp_path / "run", [10, 12], *words)
    # A shuffle with a buffer of 8 begins with numbers up to 8; worker 0 was further.
    assert all(max(worker[5]["batch"]) <= 8 for worker in resumed)
    entries = read_entries(RunDirectory(tmp_path / "run"))
    started = [entry.message for entry in entries if entry.kind.value == "start"]
    assert "starts over, because the dataset is not the one" in started[-1]


def test_with_parameter_servers_the_run_ends_with_the_dataset_of_the_chief(tmp_path):
    place, log = tmp_path / "run", tmp_path / "log"
    words = ["--steps", 9, "--log", log]
    with Cluster(place, "uneven.py", words, 2, "parameter-server") as cluster:
        assert cluster.processes[0].wait(MOST_SECONDS) == 0, cluster.output()
    # Nine batches for two workers.
    assert list(logged(log.with_name("log-0"))) == [1, 2, 3, 4]
    ended = read_entries(RunDirectory(place))[-1].message
    assert ended == "Finished after step 4: the dataset ended."


def test_a_worker_without_any_data_ends_a_loop_with_a_step_of_its_own_before_it_begins(tmp_path):
    place = tmp_path / "run"
    train(place, [3, 0], "--plain", "step")
    *_, told, saved, finished = read_entries(RunDirectory(place))
    assert told.message == (
        "The dataset of worker 1 has ended after 0 steps. Worker 0 has 3 steps. The run ends."
    )
    assert saved.kind.value == "save"
    assert finished.message == "Finished after step 0: the dataset ended."


def test_a_saved_position_has_no_batch_that_was_read_ahead(went_back, tmp_path):
    place, whole = went_back
    resumed = again_after_step_4(place, tmp_path / "run", [10, 12], "--unknown")
    for worker in range(2):
        assert list(resumed[worker]) == list(range(5, 11))
        for step, line in resumed[worker].items():
            assert line["batch"] == whole[worker][step]["batch"]


def test_a_restore_in_place_brings_back_what_was_held_to_find_the_end(went_back):
    place, _ = went_back
    for worker in range(2):
        text = place.with_name(f"log-{worker}").read_text()
        lines = [json.loads(line) for line in text.splitlines()]
        steps = [line["step"] for line in lines]
        again = steps.index(5, 5)
        assert steps[again:] == list(range(5, 11))
        for first, second in zip(lines[4:again], lines[again:], strict=False):
            assert second["step"] == first["step"]
            assert second["batch"] == first["batch"]
            assert second["loss"] == first["loss"]


def simulated(batches, weights):
    """Trains the model of the script in NumPy, on the batches of the workers that have one."""
    kernel, bias = (np.array(value) for value in weights)
    for of_workers in batches:
        losses, gradients = [], []
        for numbers in of_workers:
            x = np.array(numbers)[:, np.newaxis] / 10 * np.array([1.0, -1.0, 0.5, 2.0])
            outputs = x @ kernel + bias
            losses.append(np.mean(outputs**2))
            scale = 2 * outputs / len(numbers) / 2
            gradients.append((x.T @ scale, scale.sum(axis=0)))
        yield np.mean(losses), (kernel, bias)
        kernel = kernel - 1e-2 * sum(gradient for gradient, _ in gradients)
        bias = bias - 1e-2 * sum(gradient for _, gradient in gradients)


WAITING = [
    pytest.param((KERAS_3, []), id="Keras 3"),
    pytest.param(("tf_keras", ["--summing"]), id="Keras 2, summing", marks=KERAS_2.marks),
    pytest.param(("tf_keras", []), id="Keras 2", marks=[*KERAS_2.marks, pytest.mark.weekly]),
]


@pytest.fixture(scope="module", params=WAITING)
def waited(tmp_path_factory, request):
    """A run that went on without its chief, its directory, and how it was started."""
    place = tmp_path_factory.mktemp("waited") / "run"
    keras, words = request.param
    return place, train(place, [3, 7], "--wait", *words, keras=keras), (keras, words)


def test_the_run_goes_on_without_a_worker_whose_dataset_has_ended(waited):
    place, workers, _ = waited
    steps = [3, 7]
    assert [list(worker) for worker in workers] == [list(range(1, 8))] * 2
    batches = [
        [worker[step]["batch"] for worker, last in zip(workers, steps, strict=True) if step <= last]
        for step in range(1, 8)
    ]
    expected = simulated(batches, workers[0][1]["weights"])
    for step, (loss, weights) in enumerate(expected, 1):
        for worker in workers:
            np.testing.assert_allclose(worker[step]["loss"], loss, rtol=1e-4)
            np.testing.assert_allclose(worker[step]["weights"][0], weights[0], rtol=1e-4)
            np.testing.assert_allclose(worker[step]["weights"][1], weights[1], rtol=1e-4)
    # It repeats its last batch, which counts in none of its statistics.
    for own in ("moving", "seed"):
        assert {str(workers[0][step][own]) for step in range(3, 8)} == {str(workers[0][3][own])}
    assert [worker[7]["seen"] for worker in workers] == steps
    messages = [e.message for e in read_entries(RunDirectory(place))]
    assert (
        "The dataset of worker 0 has ended after 3 steps. Worker 1 has 7 steps. The run continues "
        "with the workers that have more."
    ) in messages
    assert messages[-1] == "Finished after step 7: the dataset ended."


def test_a_run_that_waits_for_the_longest_dataset_can_be_resumed(waited, tmp_path):
    place, whole, (keras, words) = waited
    resumed = again_after_step_4(place, tmp_path / "run", [3, 7], "--wait", *words, keras=keras)
    for worker in range(2):
        assert list(resumed[worker]) == [5, 6, 7]
        for step in range(5, 8):
            for value in ("loss", "weights", "seen", "moving", "seed"):
                assert resumed[worker][step][value] == whole[worker][step][value]


@pytest.mark.parametrize(
    ("plain", "message", "keras"),
    [
        ("gradients", "updates the model by a Keras optimizer", KERAS_3),
        pytest.param(
            "sum",
            "which sums the gradients of all workers itself",
            *KERAS_2.values,
            marks=KERAS_2.marks,
        ),
        *weekly(
            ("eager", "needs a step that is traced", KERAS_3),
            ("step", "made by run.function", KERAS_3),
        ),
    ],
)
def test_a_step_that_cannot_leave_out_a_worker_is_refused(tmp_path, plain, message, keras):
    words = ["--steps", 2, 5, "--wait", "--plain", plain, "--log", tmp_path / "log"]
    environment = environment_of(keras)
    with Cluster(tmp_path / "run", "uneven.py", words, environment=environment) as cluster:
        assert cluster.wait() == [1, 1], cluster.output()
        assert message in cluster.output()
