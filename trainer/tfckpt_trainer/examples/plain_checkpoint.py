"""A custom training loop without Keras, with a custom optimizer.

    tfckpt-tui launch RUN -- python -m tfckpt_trainer.examples.plain_checkpoint

`TrainingRun` replaces the `tf.train.Checkpoint`, the `CheckpointManager`, the restore at the start
and the save every N steps. The training loop itself stays the same.
"""

from __future__ import annotations

import argparse

import tensorflow as tf

from tfckpt_trainer.training import TrainingRun, create_strategy


class Line(tf.Module):  # type: ignore[misc]
    """The model y = a x + b, with a momentum for each variable."""

    def __init__(self) -> None:
        super().__init__()
        self.values = [tf.Variable(0.0, name=name) for name in ("a", "b")]
        self.momenta = [tf.Variable(0.0, name=f"{name}_momentum") for name in ("a", "b")]

    def step(self, batch: tf.Tensor) -> tf.Tensor:
        """Does one step of gradient descent with momentum; returns the loss."""
        with tf.GradientTape() as tape:
            a, b = self.values
            loss = tf.reduce_mean((a * batch + b - (3.0 * batch - 1.0)) ** 2)
        for value, momentum, gradient in zip(
            self.values, self.momenta, tape.gradient(loss, self.values), strict=True
        ):
            momentum.assign(0.9 * momentum + gradient)
            value.assign_sub(0.01 * momentum)
        return loss


def main() -> None:
    """Fits a line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run-dir", help="checkpoint directory (the launcher gives it)")
    parser.add_argument("--steps", type=int, default=2_000)
    options = parser.parse_args()
    strategy = create_strategy("one-device", threads=1)
    line = Line()
    data = tf.data.Dataset.random(seed=3).map(lambda n: tf.cast(n % 1000, tf.float32) / 1000.0)
    run = TrainingRun(
        options.run_dir,
        model=line,
        strategy=strategy,
        dataset=data.batch(32),
        total_steps=options.steps,
        save_every_steps=200,
    )
    train_step = run.function(line.step)
    for batch in run:
        train_step(batch)
    print("a and b:", [round(float(value), 3) for value in line.values])


if __name__ == "__main__":
    main()
