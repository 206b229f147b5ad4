"""A step that creates variables is refused: no start could restore a checkpoint with them."""

from __future__ import annotations

import numpy as np
import pytest

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import load

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize("named", [False, True])
def test_a_step_with_an_optimizer_that_was_not_built_is_refused(make_run, named):
    import keras
    import tensorflow as tf

    optimizer, variable = keras.optimizers.Adam(), tf.Variable([1.0])
    run = make_run(
        optimizer={"main": optimizer} if named else optimizer,
        extra={"variable": variable},
        total_steps=3,
        save_every_steps=1,
    )
    step = run.function(lambda _: optimizer.apply([tf.ones(1)], [variable]) or 0.0)
    with pytest.raises(UsageError, match=r"created 2 variables.*optimizer\.build\("):
        list(map(step, run))
    assert list(run.directory.glob("ckpt-*")) == []


def test_a_variable_that_is_created_before_a_later_save_is_refused(make_run):
    import keras
    import tensorflow as tf

    kept = tf.Module()
    run = make_run(extra={"kept": kept}, total_steps=3, save_every_steps=2)

    def create(step):
        if step == 1:
            kept.late = keras.Variable(0.0)

    with pytest.raises(UsageError, match=r"created 1 variable: kept/late\."):
        list(map(create, run))


def test_a_module_that_was_not_passed_and_creates_its_variable_in_the_step_is_refused(make_run):
    import tensorflow as tf

    class Scale(tf.Module):
        weight = None

        def __call__(self, x):
            if self.weight is None:
                self.weight = tf.Variable(1.0)
            return x * self.weight

    scale = Scale()
    run = make_run(total_steps=3, save_every_steps=1)
    step = run.function(lambda _: scale(1.0))
    refusal = r"created 1 variable: tf\.Module scale at test_.*\.py:\d+\. .*Pass extra={'scale': sc"
    with pytest.raises(UsageError, match=refusal):
        list(map(step, run))
    assert list(run.directory.glob("ckpt-*")) == []


def test_a_metric_that_was_not_passed_and_starts_in_the_step_is_named(make_run, tmp_path_factory):
    import keras
    import tensorflow as tf

    metric = keras.metrics.F1Score()
    run = make_run(tmp_path_factory.mktemp("run"), total_steps=2, save_every_steps=1)
    step = run.function(lambda _: metric.update_state(tf.ones([2, 1]), tf.ones([2, 1])) or 0.0)
    assert len(list(map(step, run))) == 2
    info = load(RunDirectory(run.directory).run_file, RunInfo)
    (changed,) = info.exactness.step.changes
    assert changed.startswith("metric metric at ")


def test_a_metric_may_create_its_variables_in_the_first_step(make_run):
    import keras

    metric = keras.metrics.F1Score()
    for _ in make_run(metrics=metric, total_steps=2, save_every_steps=1):
        metric.update_state(np.ones((2, 1)), np.ones((2, 1)))
