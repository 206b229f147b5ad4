"""Trains with Ray's TensorflowTrainer on two workers of this machine, until a file exists."""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path

import ray
from ray._raylet import GcsClient
from ray.core.generated.autoscaler_pb2 import DRAIN_NODE_REASON_PREEMPTION as PREEMPTION
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.tensorflow import TensorflowTrainer

parser = argparse.ArgumentParser()
parser.add_argument("run_dir")
parser.add_argument("storage")
parser.add_argument("stop_file", help="a thread of worker 1 asks for a stop when it exists")
parser.add_argument("drain_file", help="Ray drains its node when it exists")
options = parser.parse_args()


def train(config):
    """Trains until it is told to stop; Ray calls it in a thread of each worker."""
    import keras
    import tensorflow as tf

    from tfckpt_trainer import TrainingRun
    from tfckpt_trainer.training import create_strategy

    strategy = create_strategy("multi-worker", threads=1)
    with strategy.scope():
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.Adam(1e-3)
        optimizer.build(model.trainable_variables)
    dataset = tf.data.Dataset.from_tensors(tf.ones((4, 8))).repeat()
    run = TrainingRun(
        config["run_dir"], model=model, optimizer=optimizer, strategy=strategy, dataset=dataset
    )

    @run.function
    def step(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(batch, training=True) ** 2)
            scaled = loss / run.replica_count
        gradients = tape.gradient(scaled, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    def watch():
        while not Path(config["stop_file"]).exists():
            time.sleep(0.1)
        run.request_stop("the file exists")

    if not run.is_chief:
        threading.Thread(target=watch, daemon=True).start()
    drained = False
    for batch in run:
        step(batch)
        time.sleep(0.01)
        # All workers have to ask Ray together.
        if run.step % 50 == 0 and not drained and ray.train.get_preemption_info():
            drained = True
            run.request_save("Ray drains a node")


def drain_when_asked():
    """Announces that the only node goes away in an hour, when a file exists."""
    while not Path(options.drain_file).exists():
        time.sleep(0.1)
    context = ray.get_runtime_context()
    client = GcsClient(address=context.gcs_address)
    deadline = round(1000 * (time.time() + 3600))
    client.drain_node(context.get_node_id(), PREEMPTION, "a spot instance", deadline)


ray.init("local", num_cpus=2, include_dashboard=False)
threading.Thread(target=drain_when_asked, daemon=True).start()
TensorflowTrainer(
    train,
    train_loop_config={"run_dir": options.run_dir, "stop_file": options.stop_file},
    scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(
        storage_path=options.storage,
        failure_config=FailureConfig(max_failures=2),
    ),
).fit()
