"""Trains several models at once, with all kinds of state, and logs each part of it bit by bit."""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from shared_parts import digest, request_restore

from tfckpt_trainer import SaveOptions, TrainingRun
from tfckpt_trainer.training import create_strategy

STEPS = 18
SAVED = 10

parser = argparse.ArgumentParser()
parser.add_argument("--log", required=True)
parser.add_argument("--strategy", default="multi-worker")
parser.add_argument("--in-parts", action="store_true", help="beside training, by all workers")
parser.add_argument("--restart", action="store_true", help="goes on where the first run died")
options = parser.parse_args()
index = int(os.environ["TFCKPT_WORKER_INDEX"])


class Wrapped(tf.Module):
    """Keras layers in plain attributes, lists and dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.first = keras.layers.Dense(8, activation="relu")
        self.middle = [keras.layers.BatchNormalization(), keras.layers.Dropout(0.3)]
        self.last = {"head": keras.layers.Dense(2)}
        self.seen = keras.metrics.Mean()
        self.noise = keras.random.SeedGenerator(5)

    def __call__(self, x):
        x = self.first(x + 0.1 * keras.random.normal(tf.shape(x), seed=self.noise))
        for layer in self.middle:
            x = layer(x, training=True)
        return self.last["head"](x)


class Curriculum:
    """State of the script's own: Python values and an array."""

    def __init__(self) -> None:
        self.level = 0
        self.weights = np.zeros(3, np.float32)

    def advance(self, loss: float) -> None:
        self.level += 1
        self.weights = np.roll(self.weights + np.float32(loss), 1)

    def state_dict(self) -> dict[str, object]:
        return {"level": self.level, "weights": self.weights}

    def load_state_dict(self, state: dict[str, object]) -> None:
        self.level = int(state["level"])
        self.weights = np.asarray(state["weights"])


strategy = create_strategy(options.strategy, threads=1)
keras.utils.set_random_seed(3)
with strategy.scope():
    recurrent = keras.Sequential(
        [
            keras.Input((4, 3), batch_size=4),
            # A loop in the graph would take most of the time of tracing, and has the same state.
            keras.layers.LSTM(5, stateful=True, dropout=0.3, unroll=True),
            keras.layers.Dense(2),
        ]
    )
    generator = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(8)]
    )
    discriminator = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(8, activation="relu"),
            keras.layers.BatchNormalization(momentum=0.9),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(1),
        ]
    )
    wrapped = Wrapped()
    wrapped(tf.zeros((4, 3)))
    makers = [*recurrent.trainable_variables, *generator.trainable_variables]
    makers += wrapped.trainable_variables
    critics = discriminator.trainable_variables
    optimizer = keras.optimizers.Adam(1e-2)
    optimizer.build(makers)
    critic_optimizer = keras.optimizers.Adam(1e-2)
    critic_optimizer.build(critics)
    mean = keras.metrics.Mean()
    listed = keras.metrics.SparseCategoricalAccuracy()
    shift = tf.Variable(
        0.0,
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.MEAN,
    )
# Created on each worker, with a seed of its own.
own_noise = tf.random.Generator.from_seed(100 + index)
words = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
curriculum = Curriculum()


def examples(context):
    random = np.random.RandomState(100 + context.input_pipeline_id)
    x = random.randn(96, 4, 3).astype(np.float32)
    y = random.randint(0, 2, 96)
    dataset = tf.data.Dataset.from_tensor_slices((x, y))
    return dataset.shuffle(64, seed=5 + context.input_pipeline_id).repeat().batch(4)


extra = {"own_noise": own_noise, "shift": shift, "listed": listed.variables}
if not options.in_parts:
    # A table has its value outside variables, which only a save in the foreground can write.
    extra["words"] = words
run = TrainingRun(
    model={
        "recurrent": recurrent,
        "generator": generator,
        "discriminator": discriminator,
        "wrapped": wrapped,
    },
    optimizer={"makers": optimizer, "critic": critic_optimizer},
    metrics={"mean": mean},
    extra={**extra, "curriculum": curriculum},
    strategy=strategy,
    dataset=examples,
    total_steps=STEPS if options.restart else 100,
    save_every_steps=SAVED,
    saving=SaveOptions(background=True, spread=True) if options.in_parts else None,
)


def replica_step(batch):
    x, y = batch
    with tf.GradientTape(persistent=True) as tape:
        logits = recurrent(x, training=True)
        logits += wrapped(x[:, 0])
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
        made = generator(own_noise.normal((4, 3)))
        scores = discriminator(made, training=True)
        true_scores = discriminator(tf.reshape(x, (4, 12))[:, :8], training=True)
        made_loss = tf.reduce_mean(tf.nn.softplus(-scores))
        critic_loss = tf.reduce_mean(tf.nn.softplus(scores) + tf.nn.softplus(-true_scores))
        total = (loss + made_loss) / run.replica_count
        critic_total = critic_loss / run.replica_count
    optimizer.apply(tape.gradient(total, makers), makers)
    critic_optimizer.apply(tape.gradient(critic_total, critics), critics)
    mean.update_state(loss)
    wrapped.seen.update_state(made_loss)
    listed.update_state(y, logits)
    shift.assign_add(tf.reduce_mean(x))
    return {"loss": loss, "critic_loss": critic_loss}


def parts() -> dict[str, object]:
    lookups = words.lookup(tf.range(30, dtype=tf.int64)).numpy().tolist()
    return {
        "recurrent": digest(strategy, recurrent.variables),
        "generator": digest(strategy, [*generator.variables, own_noise.state]),
        "discriminator": digest(strategy, discriminator.variables),
        "wrapped": digest(
            strategy,
            [*wrapped.variables, wrapped.noise.state, wrapped.middle[1].seed_generator.state],
        ),
        "optimizers": digest(strategy, [*optimizer.variables, *critic_optimizer.variables]),
        "mean": digest(strategy, mean.variables),
        "seen": digest(strategy, wrapped.seen.variables),
        "listed": digest(strategy, listed.variables),
        "shift": digest(strategy, [shift]),
        "curriculum": [curriculum.level, curriculum.weights.tobytes().hex()],
        "words": [] if options.in_parts else lookups,
    }


train_step = run.function(replica_step)
passes, last = 0, 0
with open(f"{options.log}-{index}.jsonl", "a", buffering=1) as log:
    for batch in run:
        metrics = train_step(batch)
        step = run.step + 1
        passes, last = passes + (step <= last), step
        curriculum.advance(metrics["loss"] + index)
        words.insert(tf.constant([step], tf.int64), tf.constant([step * 10 + index], tf.int64))
        losses = [metrics[name].hex() for name in sorted(metrics)]
        log.write(json.dumps({"step": step, "pass": passes, "losses": losses, **parts()}) + "\n")
        if options.restart or step < STEPS:
            continue
        if passes == 0 and step == STEPS and index == 0:
            request_restore(run.directory, f"ckpt-{SAVED}")
        if passes == 1:
            Path(f"{options.log}-{index}.done").touch()
            while len(list(Path(options.log).parent.glob("*.done"))) < run.worker_count:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
