"""Trains a small model for as long as it is let, to be steered from outside."""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import resource
import shutil
import signal
import sys
import threading
import time
from unittest import mock

import keras
import tensorflow as tf
from shared_parts import watch_iterators

from tfckpt_trainer import Policy, SaveOptions, TrainingRun
from tfckpt_trainer.catalog.retention.rules import BestBy
from tfckpt_trainer.rundir.heartbeats import gathered
from tfckpt_trainer.training import create_strategy

STEP_SECONDS = 0.03
"""The least that a step takes in a run that has no end."""

parser = argparse.ArgumentParser()
parser.add_argument("--strategy", default="multi-worker")
parser.add_argument("--steps", type=int)
parser.add_argument("--save-every", type=int)
parser.add_argument("--save-every-seconds", type=float)
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--largest-file", type=int, help="bytes that the kernel lets a file have")
parser.add_argument("--plain", action="store_true", help="a step and a reduction of one's own")
parser.add_argument(
    "--die-at-rename", type=int, help="kill it before this one of the save of step 20"
)
parser.add_argument("--copy-at-renames", help="copy it there before each of them, likewise")
parser.add_argument("--refuse-flush", type=int, help="of the run directory, once this is saved")
parser.add_argument("--refuse-journal", type=int, help="flushes of it, so many")
parser.add_argument("--trace", help="file for the flushes and renames, in their order")
parser.add_argument("--keep-last", type=int)
parser.add_argument("--keep-best", type=BestBy.from_value, action="append", default=[])
parser.add_argument("--trash-hours", type=float)
parser.add_argument("--make-room", action="store_true")
parser.add_argument("--background", action="store_true")
parser.add_argument("--when-busy", default="queue")
parser.add_argument("--when-full", default="go-on")
parser.add_argument("--fallback", help="directory of the last save if it fails")
parser.add_argument("--spread", action="store_true")
parser.add_argument("--largest-shard", type=int)
parser.add_argument("--improve", help="save when this metric improves")
parser.add_argument("--scores", help="JSON: a metric of one's own, by step")
parser.add_argument("--save-when", help="JSON: steps that the trigger of each worker wants")
parser.add_argument("--outputs", type=int, default=1, help="of the last layer")
parser.add_argument("--partial", action="store_true")
parser.add_argument("--custom-layer", action="store_true")
parser.add_argument("--terminated", action="store_true", help="before there is a run to end")
parser.add_argument("--poison", type=int, help="set a weight to NaN before this step, once")
parser.add_argument("--watch-iterators", help="file for what happens to iterators of tf.data")
parser.add_argument("--random-input", action="store_true", help="a map that draws numbers")
parser.add_argument("--note-every", type=int, help="steps between two lines of the event log")
parser.add_argument("--step-times", help="file for the time of each step")
parser.add_argument("--take-orders", action="store_true", help="to break a function")
parser.add_argument("--few", type=int, default=16, help="workers that are read one by one")
parser.add_argument("--threads", type=int, default=1, help="0 for those that there are")
options = parser.parse_args()
gathered.FEW = options.few


@keras.saving.register_keras_serializable()
class Doubled(keras.layers.Layer):
    """Known to this script alone."""

    def call(self, inputs):
        return 2 * inputs


class WantedSteps:
    """Wants other steps on each worker, and fails on all but the chief."""

    def __init__(self, of_workers):
        self.worker = int(os.environ["TFCKPT_WORKER_INDEX"])
        self.steps = of_workers[self.worker]

    def reason(self, step, metrics):
        if step == 6 and self.worker:
            raise ValueError(step)
        return f"worker {self.worker}" if step in self.steps else None


if options.watch_iterators:
    watch_iterators(f"{options.watch_iterators}-{os.environ['TFCKPT_WORKER_INDEX']}")
strategy = create_strategy(options.strategy, threads=options.threads or None)
if options.terminated:
    os.kill(os.getpid(), signal.SIGTERM)
keras.utils.set_random_seed(3)
with strategy.scope():
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(options.width), keras.layers.Dense(options.outputs)]
    )
    if options.custom_layer:
        model.add(Doubled())
    optimizer = keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)

dataset = tf.data.Dataset.from_tensors(tf.ones((4, 8))).repeat()
if options.random_input:
    dataset = tf.data.Dataset.range(1000).map(
        lambda index: tf.random.uniform((4, 8), -0.5, 0.5) + tf.cast(index, tf.float32)
    )

run = TrainingRun(
    model=model,
    optimizer=optimizer,
    strategy=strategy,
    dataset=None if options.plain else dataset,
    total_steps=options.steps,
    save_every_steps=options.save_every,
    save_every_seconds=options.save_every_seconds,
    retention=Policy(keep_last=options.keep_last, keep_best=tuple(options.keep_best)),
    trash_hours=options.trash_hours,
    make_room=options.make_room,
    save_on_improvement=options.improve,
    save_when=[WantedSteps(json.loads(options.save_when))] if options.save_when else [],
    partial=options.partial,
    saving=SaveOptions(
        background=options.background,
        when_busy=options.when_busy,
        when_full=options.when_full,
        fallback_directory=options.fallback,
        spread=options.spread,
        largest_shard=options.largest_shard,
    ),
)
scores = {int(step): score for step, score in json.loads(options.scores or "{}").items()}


def replica_step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(batch, training=True) ** 2)
        scaled = loss / run.replica_count
    gradients = tape.gradient(scaled, model.trainable_variables)
    optimizer.apply(gradients, model.trainable_variables)
    return {"loss": loss, "twice": 2 * loss}


@tf.function
def plain_step():
    losses = strategy.run(replica_step, args=(tf.ones((4, 8)),))["loss"]
    return strategy.reduce("MEAN", losses, axis=None)


renames = 0
one_rename = threading.Lock()


def target_of_rename(arguments):
    """Returns the new path of what is renamed, below the run directory."""
    _, target, _, directory = arguments
    if directory >= 0:
        target = os.path.join(os.readlink(f"/proc/self/fd/{directory}"), target)
    return os.path.relpath(os.fspath(target), run.directory)


def watch_renames(event, arguments):
    """Kills this process, or copies the run, before each rename of the save of step 20, and on."""
    global renames
    if event != "os.rename":
        return
    target = target_of_rename(arguments)
    if "ckpt-20" not in target and not (renames and ("ckpt-" in target or target == "checkpoint")):
        return
    with one_rename:
        renames += 1
        if renames == options.die_at_rename:
            os.kill(os.getpid(), signal.SIGKILL)
        if options.copy_at_renames:
            # Heartbeats go on, and may rename one of their files meanwhile.
            with contextlib.suppress(shutil.Error):
                shutil.copytree(run.directory, os.path.join(options.copy_at_renames, str(renames)))


flush = os.fsync


def refuse_to_flush(descriptor):
    """Fails as a disk does that has the index of a checkpoint and cannot flush its directory."""
    index = run.directory / f"ckpt-{options.refuse_flush}.index"
    if os.path.samestat(os.fstat(descriptor), os.stat(run.directory)) and index.exists():
        os.fsync = flush
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    flush(descriptor)


def refuse_to_flush_the_journal(descriptor):
    """Fails as a disk does that has the line and cannot flush it."""
    if options.refuse_journal and os.readlink(f"/proc/self/fd/{descriptor}").endswith(".jsonl"):
        options.refuse_journal -= 1
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    flush(descriptor)


if options.refuse_flush:
    os.fsync = refuse_to_flush
if options.refuse_journal:
    os.fsync = refuse_to_flush_the_journal


def trace_to(path):
    """Writes down each flush and each rename below the run directory."""

    def tell(kind, changed):
        with open(path, "a") as file:
            file.write(f"{kind} {changed}\n")

    def flush_and_tell(descriptor):
        flush(descriptor)
        changed = os.readlink(f"/proc/self/fd/{descriptor}")
        tell("flush", os.path.relpath(changed, run.directory))

    def tell_of_renames(event, arguments):
        if event == "os.rename":
            tell("rename", target_of_rename(arguments))

    os.fsync = flush_and_tell
    sys.addaudithook(tell_of_renames)


if options.trace:
    trace_to(options.trace)
if options.die_at_rename or options.copy_at_renames:
    sys.addaudithook(watch_renames)

breaks = []


def take_orders(order):
    """Breaks the function that a file names, by an error that no line of this script raises."""
    target = order.read_text()
    order.unlink()
    while breaks:
        breaks.pop().stop()
    if target:
        breaks.append(mock.patch(target, side_effect=ZeroDivisionError("injected")))
        breaks[-1].start()
    order.with_suffix(".done").touch()


noise = [0.5]


def take_noise(value):
    if value > 1 and worker == 1:
        raise ValueError("too loud for worker 1")
    noise.append(value)


run.tunable("noise", lambda: noise[-1], take_noise, low=0)
train_step = run.function(replica_step)
worker = int(os.environ["TFCKPT_WORKER_INDEX"])
order = run.directory / f"break-{worker}"
for batch in run:
    # Not without need: a step that asks the disk waits for one that hangs.
    if options.take_orders and order.exists():
        take_orders(order)
    if options.steps is None:
        # At full speed it would take the processor from the tests that wait for it.
        time.sleep(STEP_SECONDS)
    if options.plain:
        run.report(loss=plain_step())
    else:
        train_step(batch)
    if options.note_every and run.step % options.note_every == 0:
        run.note(f"At step {run.step}.")
    if options.step_times:
        with open(options.step_times, "a") as file:
            file.write(f"{time.monotonic()}\n")
    run.state["count"] = run.state.get("count", 0) + 1
    run.worker_state["set"] = [noise[-1], float(optimizer.learning_rate.numpy())]
    run.worker_state["mine"] = run.worker_state.get("mine", 0) + 1 + worker
    if run.step in scores:
        run.report(score=scores[run.step])
    # The step of this batch is not counted yet.
    if run.step + 2 == options.poison:
        options.poison = None
        model.weights[0].assign(float("nan") * model.weights[0])
    if (options.die_at_rename or options.copy_at_renames) and run.step == 15:
        # Step 20 is not saved while step 10 still is.
        while run._saves._current is not None and not run._saves.needs_sync:
            time.sleep(0.01)
    if options.largest_file and run.step == 5:
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (options.largest_file, most))
