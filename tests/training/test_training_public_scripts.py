"""Public scripts, with the usual lines changed, resume exactly, and `status` says so."""

from __future__ import annotations

import pytest
from test_training_draws import exactness_of_run, train
from training_cluster import Cluster

from tfckpt_trainer.rundir.records.exactness import ExactnessLevel

# One that draws runs at each change: test_training_draws.py.
pytestmark = [pytest.mark.tensorflow, pytest.mark.weekly]


@pytest.mark.parametrize(
    ("script", "strategy", "workers", "level"),
    [
        ("distributed", "mirrored", 1, ExactnessLevel.EXPECTED),
        ("distributed", "multi-worker", 2, ExactnessLevel.EXPECTED),
        ("masked_lm", "one-device", 1, ExactnessLevel.EXPECTED),
        ("metric_learning", "one-device", 1, ExactnessLevel.EXPECTED),
        # It has a loop of its own, without run.function.
        ("reptile", "one-device", 1, ExactnessLevel.UNKNOWN),
        ("segmentation", "multi-worker", 2, ExactnessLevel.EXPECTED),
        ("transformer", "one-device", 1, ExactnessLevel.EXPECTED),
    ],
)
def test_a_public_script_resumes_exactly(tmp_path, script, strategy, workers, level):
    for first, in_place, cold in train(tmp_path, f"ported_{script}.py", strategy, workers, None):
        assert [in_place[step] for step in (5, 6, 7)] == [first[step] for step in (5, 6, 7)]
        assert list(cold) == [9, 10, 11, 12]
        assert cold[9] == in_place[9]
    found = exactness_of_run(tmp_path / "run")
    assert found.level is level, found.words


def test_a_keras_layer_that_augments_in_the_pipeline_is_named_with_what_to_do(tmp_path_factory):
    # Not in tmp_path, where no run may be told of state that is not saved: here it is right.
    directory = tmp_path_factory.mktemp("as-published")
    run, arguments = directory / "run", ["--log", str(directory / "log"), "--steps", "4"]
    with Cluster(
        run, "ported_segmentation.py", [*arguments, "--as-published"], 1, "one-device"
    ) as cluster:
        assert cluster.wait() == [0], cluster.output()
    found = exactness_of_run(run)
    assert found.words == (
        "not possible because the input pipeline 'dataset' uses the Keras layer Augment in map"
    )
    (remedy,) = found.remedies
    assert remedy.startswith("Apply random Keras layers in the model. Use tf.random.stateless_*")
