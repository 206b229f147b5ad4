"""Trains steps that cannot end before this script lets them, in TensorFlow's asynchronous mode.

As on a GPU, a function returns before it is computed there, and reading its result waits. Each
step takes a token from a queue. It gets it when the script has the input of the next step, or at
once if a save follows. If the run waits for a step before that, nothing goes on: then a token is
forced, and its number printed. There is no dataset, whose iterator waits for all in this mode.
"""

from __future__ import annotations

import json
import sys
import threading

import tensorflow as tf
from tensorflow.python.eager import context, executor

from tfckpt_trainer import TrainingRun

STEPS, SAVE_EVERY = 8, 4
PATIENCE_SECONDS = 20.0

tf.config.experimental.set_synchronous_execution(False)
tokens = tf.queue.FIFOQueue(STEPS, [tf.float32], shapes=[[]])
model = tf.Module()
model.sum = tf.Variable(0.0)
allowed, forced = threading.Semaphore(0), []


def give_tokens() -> None:
    # Operations of one executor wait for each other, so this thread needs its own.
    with context.executor_scope(executor.new_executor(enable_async=False)):
        for number in range(1, STEPS + 1):
            if not allowed.acquire(timeout=PATIENCE_SECONDS if not forced else 0):
                forced.append(number)
            tokens.enqueue(float(number))


def replica_step(_):
    return model.sum.assign_add(tokens.dequeue())


run = TrainingRun(
    sys.argv[1],
    model=model,
    total_steps=STEPS,
    save_every_steps=SAVE_EVERY,
)
train_step, results = run.function(replica_step), []
giver = threading.Thread(target=give_tokens)
for _ in run:
    if not run.step:
        giver.start()
    elif run.step % SAVE_EVERY:
        allowed.release()
    results.append(train_step(tf.constant(0)))
    if (run.step + 1) % SAVE_EVERY == 0:
        allowed.release()
print(json.dumps({"forced": forced, "sums": [result["loss"] for result in results]}))
