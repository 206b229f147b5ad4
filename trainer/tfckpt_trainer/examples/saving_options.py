"""Save options: background saves, sharded saves, a maximum shard size, and saves on improvement.

    tfckpt-tui launch RUN --workers 2 -- python -m tfckpt_trainer.examples.saving_options

It also saves its own values with each checkpoint, shared values and values per worker.
`tfckpt-tui inspect RUN` shows them, and a restore brings them back.
"""

from __future__ import annotations

import argparse
import os

import keras
import tensorflow as tf

from tfckpt_trainer.training import SaveOptions, StrategyName, TrainingRun, create_strategy


def main() -> None:
    """Trains an autoencoder with all save options."""
    launched = "TF_CONFIG" in os.environ
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run-dir", help="checkpoint directory (the launcher gives it)")
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--width", type=int, default=256)
    options = parser.parse_args()
    name = StrategyName.MULTI_WORKER if launched else StrategyName.MIRRORED
    strategy = create_strategy(name, threads=1)
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((64,)),
                keras.layers.Dense(options.width, activation="relu"),
                keras.layers.Dense(64),
            ]
        )
        optimizer = keras.optimizers.Adam(1e-3)
        optimizer.build(model.trainable_variables)

    run = TrainingRun(
        options.run_dir,
        model=model,
        optimizer=optimizer,
        strategy=strategy,
        dataset=lambda context: noise(context.input_pipeline_id),
        total_steps=options.steps,
        save_every_steps=500,
        save_on_improvement="validation_loss:min",
        saving=SaveOptions(
            background=True,  # copy the values at the step, write them during training
            when_busy="skip",  # skip a save that is due while another one is running
            spread=True,  # each worker writes a part of the checkpoint
            largest_shard=64 << 20,  # at most 64 MiB of tensors per file
            when_full="pause",  # on a full disk, pause the run until there is space
        ),
    )

    def replica_step(batch: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = mean_square(model(batch, training=True) - batch)
            scaled = loss / run.replica_count
        optimizer.apply(tape.gradient(scaled, model.trainable_variables), model.trainable_variables)
        return loss

    held_out = next(iter(noise(99)))
    validate = tf.function(lambda: mean_square(model(held_out, training=False) - held_out))
    train_step = run.function(replica_step)
    for batch in run:
        train_step(batch)
        run.worker_state["examples"] = run.worker_state.get("examples", 0) + 32
        if (run.step + 1) % 100 == 0:
            loss = float(validate())
            run.report(validation_loss=loss)
            run.state["validations"] = [*run.state.get("validations", []), round(loss, 4)][-5:]


def mean_square(difference: tf.Tensor) -> tf.Tensor:
    """Returns the mean square."""
    return tf.reduce_mean(difference**2)


def noise(seed: int) -> tf.data.Dataset:
    """Returns an endless dataset of batches of random sine curves."""
    numbers = tf.data.Dataset.random(seed=seed + 1)

    def curve(number: tf.Tensor) -> tf.Tensor:
        phase = tf.cast(number % 1000, tf.float32) / 160.0
        return tf.sin(phase + tf.linspace(0.0, 6.3, 64))

    return numbers.map(curve).batch(32).prefetch(2)


if __name__ == "__main__":
    main()
