"""Optimizers of Keras 3 and of Keras 2 resume as they trained, and have hyperparameters."""

from __future__ import annotations

import json
from functools import cache

import pytest
from kerases import KERAS_2, KERAS_3, environment_of
from training_cluster import SCRIPTS

from tensorflow_processes import run_with_tensorflow
from tfckpt_trainer.errors import UsageError

pytestmark = [pytest.mark.tensorflow, pytest.mark.matrix]

ADAM = ["beta_1", "beta_2", "learning_rate"]
OF_BOTH = {
    "adam": ADAM,
    "average": [*ADAM[:2], "clipnorm", "ema_momentum", "learning_rate", "weight_decay"],
    "scaled": [*ADAM, "loss_scale"],
    "schedule": ["learning_rate", "learning_rate_factor", "momentum"],
}
OF_KERAS_2 = {"legacy": ADAM, "legacy schedule": OF_BOTH["schedule"]}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    @cache
    def trained(keras):
        place = tmp_path_factory.mktemp(keras)
        done = run_with_tensorflow(SCRIPTS / "optimizers.py", place, **environment_of(keras))
        assert done.returncode == 0, done.stderr[-3000:]
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        return {case.pop("name"): case for case in map(json.loads, lines)}

    return trained


CASES = [
    *(pytest.param(KERAS_3, name, id=name) for name in OF_BOTH),
    *(
        pytest.param("tf_keras", name, id=f"{name} of Keras 2", marks=KERAS_2.marks)
        for name in (*OF_BOTH, *OF_KERAS_2)
    ),
]


@pytest.mark.parametrize(("keras", "name"), CASES)
def test_a_fit_that_was_left_and_resumed_is_that_of_keras_bit_for_bit(found, keras, name):
    assert found(keras)[name]["equal"]


@pytest.mark.parametrize(("keras", "name"), CASES)
def test_its_hyperparameters_are_found_and_a_changed_one_trains_as_one_that_was_given(
    found, keras, name
):
    assert found(keras)[name]["hyperparameters"] == (OF_BOTH | OF_KERAS_2)[name]
    assert found(keras)[name]["changed"]


def test_a_model_of_the_keras_that_tensorflow_does_not_use_is_refused():
    import tensorflow as tf

    from tfckpt_trainer.training.state.passed import check_passed

    members = {"__module__": "tf_keras.src.engine.sequential"}
    model = type("Sequential", (tf.Module,), members)()
    with pytest.raises(UsageError, match="The Sequential is of tf_keras") as refusal:
        check_passed({"model": model}, {})
    assert "Set `TF_USE_LEGACY_KERAS=1` in the environment" in str(refusal.value)
