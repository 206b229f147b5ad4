"""A byte-level language model of Python source code, trained on several workers.

    tfckpt-tui launch RUN --workers 2 -- python -m tfckpt_trainer.examples.language_model

`tfckpt-tui demo` runs this script too. It trains on Python's standard library, so there is nothing
to download. The comments (1) to (3) mark the calls of the library.
"""

from __future__ import annotations

import argparse
import os
import sysconfig
from pathlib import Path

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfckpt_trainer.training import StrategyName, TrainingRun, create_strategy

CONTEXT = 64
WIDTH = 64
HEADS = 4
BLOCKS = 2
BATCH = 16
SEED = 7
Bytes = npt.NDArray[np.uint8]
LEFT_OUT = {"site-packages", "test"}
HELD_OUT = {"argparse.py", "heapq.py", "json", "random.py", "textwrap.py"}


def main() -> None:
    """Trains until the last step, or until the run is stopped."""
    options = parse_options()
    strategy = create_strategy(options.strategy, threads=1)
    keras.utils.set_random_seed(SEED)
    with strategy.scope():
        model = build_model()
        optimizer = keras.optimizers.Adam(3e-3, clipnorm=1.0)
        optimizer.build(model.trainable_variables)
    training_text, validation_text = read_standard_library()

    run = TrainingRun(  # (1) defines the state to save
        options.run_dir,
        strategy=strategy,
        model=model,
        optimizer=optimizer,
        dataset=lambda context: random_crops(training_text, context),
        total_steps=options.steps,
        save_every_steps=options.save_every,
    )

    def replica_step(batch: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = next_byte_loss(model(batch[:, :-1], training=True), batch[:, 1:])
            # Gradients are summed over replicas; this makes the sum a mean.
            scaled = loss / run.replica_count
        gradients = tape.gradient(scaled, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    held_out = crops_at(validation_text, np.linspace(0, 1, 4 * BATCH))

    validate = tf.function(
        lambda: next_byte_loss(model(held_out[:, :-1], training=False), held_out[:, 1:])
    )
    train_step = run.function(replica_step)  # (2) runs one step on all replicas
    for batch in run:  # (3) restores first, and carries out commands between steps
        train_step(batch)
        if (run.step + 1) % options.validate_every == 0:
            run.report(validation_loss=validate())


def parse_options() -> argparse.Namespace:
    """Parses the command line."""
    launched = "TF_CONFIG" in os.environ
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run-dir", help="checkpoint directory (the launcher gives it)")
    parser.add_argument("--steps", type=int, default=20_000, help="steps to train")
    parser.add_argument("--save-every", type=int, default=100, help="steps between checkpoints")
    parser.add_argument("--validate-every", type=int, default=50, help="steps between validations")
    parser.add_argument(
        "--strategy",
        choices=[name.value for name in StrategyName],
        default=(StrategyName.MULTI_WORKER if launched else StrategyName.ONE_DEVICE).value,
    )
    return parser.parse_args()


def build_model() -> keras.Model:
    """Returns a small causal transformer over bytes."""
    bytes_in = keras.Input((CONTEXT,), dtype="int32")
    positions = keras.ops.cumsum(keras.ops.ones_like(bytes_in), axis=1) - 1
    x = keras.layers.Embedding(256, WIDTH)(bytes_in)
    x = x + keras.layers.Embedding(CONTEXT, WIDTH)(positions)
    for _ in range(BLOCKS):
        y = keras.layers.LayerNormalization()(x)
        y = keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS, dropout=0.1)(
            y, y, use_causal_mask=True
        )
        x = x + y
        y = keras.layers.LayerNormalization()(x)
        y = keras.layers.Dense(4 * WIDTH, activation="gelu")(y)
        x = x + keras.layers.Dropout(0.1)(keras.layers.Dense(WIDTH)(y))
    return keras.Model(bytes_in, keras.layers.Dense(256)(keras.layers.LayerNormalization()(x)))


def next_byte_loss(logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Returns the mean cross-entropy in nats per byte."""
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(targets, tf.int32), logits)
    )


def read_standard_library() -> tuple[Bytes, Bytes]:
    """Returns the training text and the validation text, as arrays of bytes."""
    root = Path(sysconfig.get_paths()["stdlib"])
    training: list[bytes] = []
    validation: list[bytes] = []
    paths: list[Path] = []
    for directory, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in LEFT_OUT]
        paths += [Path(directory, name) for name in files if name.endswith(".py")]
    for path in sorted(paths):
        is_held_out = path.relative_to(root).parts[0] in HELD_OUT
        (validation if is_held_out else training).append(path.read_bytes())
    return _as_array(training), _as_array(validation)


def _as_array(parts: list[bytes]) -> Bytes:
    return np.frombuffer(b"\n".join(parts), np.uint8)


def random_crops(text: Bytes, context: tf.distribute.InputContext) -> tf.data.Dataset:
    """Returns an endless dataset of batches of random crops, different on each worker."""
    source = tf.constant(text)
    last = len(text) - CONTEXT - 1

    def crop(number: tf.Tensor) -> tf.Tensor:
        begin = tf.cast(number % last, tf.int32)
        return tf.cast(source[begin : begin + CONTEXT + 1], tf.int32)

    numbers = tf.data.Dataset.random(seed=SEED + context.input_pipeline_id)
    return numbers.map(crop).batch(BATCH, drop_remainder=True).prefetch(2)


def crops_at(text: Bytes, places: npt.NDArray[np.float64]) -> tf.Tensor:
    """Returns the crops at relative positions `places`, from 0 to 1."""
    begins = (places * (len(text) - CONTEXT - 1)).astype(int)
    return tf.constant(np.stack([text[b : b + CONTEXT + 1] for b in begins]), tf.int32)


if __name__ == "__main__":
    main()
