"""A step that creates variables is refused: no start could restore a checkpoint with them."""

from __future__ import annotations

import numpy as np
import pytest

from tfckpt_trainer.errors import UsageError

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
    (changed,) = run.traced.facts().changes
    assert changed.startswith("metric metric at ")


def test_a_metric_may_create_its_variables_in_the_first_step(make_run):
    import keras

    metric = keras.metrics.F1Score()
    for _ in make_run(metrics=metric, total_steps=2, save_every_steps=1):
        metric.update_state(np.ones((2, 1)), np.ones((2, 1)))


def a_gan(build):
    import keras
    import tensorflow as tf

    class Gan(keras.Model):
        def __init__(self):
            super().__init__()
            self.judge = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
            self.maker = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
            self.noise = keras.random.SeedGenerator(1)

        def compile(self):
            super().compile()
            self.optimizers = {"judge": keras.optimizers.Adam(), "maker": keras.optimizers.Adam()}
            if build:
                for name, optimizer in self.optimizers.items():
                    optimizer.build(getattr(self, name).trainable_variables)

        def train_step(self, real):
            noise = keras.random.normal(tf.shape(real), seed=self.noise)
            losses = {}
            for sign, name in ((1, "judge"), (-1, "maker")):
                variables = getattr(self, name).trainable_variables
                with tf.GradientTape() as tape:
                    made = self.judge(self.maker(noise))
                    loss = sign * tf.reduce_mean(made - self.judge(real))
                self.optimizers[name].apply(tape.gradient(loss, variables), variables)
                losses[name] = loss
            return losses

    keras.utils.set_random_seed(1)
    gan = Gan()
    gan.compile()
    return gan


def train_gan(gan, directory, epochs):
    import tensorflow as tf

    from tfckpt_trainer.training import fit

    x = np.random.RandomState(0).randn(16, 2).astype("float32")
    data = tf.data.Dataset.from_tensor_slices(x).shuffle(16, seed=3).batch(4)
    return fit(gan, data, epochs=epochs, run_dir=directory, verbose=0).history


def test_a_model_without_call_and_with_its_own_optimizers_resumes_exactly(make_run, tmp_path):
    whole = train_gan(a_gan(build=True), tmp_path / "whole", 3)
    train_gan(a_gan(build=True), tmp_path / "parts", 1)
    assert train_gan(a_gan(build=True), tmp_path / "parts", 3) == whole


def test_a_model_whose_own_optimizers_are_not_built_is_refused(make_run, tmp_path):
    with pytest.raises(UsageError, match=r"model/optimizers/judge.*optimizer\.build\("):
        train_gan(a_gan(build=False), tmp_path / "run", 1)


def test_a_model_without_call_whose_layers_are_not_built_is_refused(make_run, tmp_path):
    import keras

    gan = a_gan(build=True)
    gan.extra_layer = keras.layers.Dense(1, name="unused")
    with pytest.raises(UsageError, match=r"Gan has no call\(\).*unused"):
        train_gan(gan, tmp_path / "run", 1)
