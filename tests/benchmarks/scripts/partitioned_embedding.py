"""Trains an embedding in two partitions, 1% of its rows in each step; tells what its saves cost."""

from __future__ import annotations

import argparse
import functools
import json
import time
from pathlib import Path

import tensorflow as tf

from tfckpt_trainer import SaveOptions, TrainingRun
from tfckpt_trainer.catalog.directory.history import Records
from tfckpt_trainer.rundir.heartbeats.reading import read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.training import create_strategy

WIDTH = 64

parser = argparse.ArgumentParser()
parser.add_argument("--megabytes", type=int, required=True)
parser.add_argument("--background", action="store_true")
parser.add_argument("--steps", type=int, required=True)
parser.add_argument("--output", type=Path, required=True)
options = parser.parse_args()

strategy = create_strategy(
    "parameter-server",
    variable_partitioner=tf.distribute.experimental.partitioners.FixedShardsPartitioner(2),
)
rows = options.megabytes * 1_000_000 // (4 * WIDTH)


def initial(shape, partition_shape=None, partition_offset=None):
    """Each server makes its own rows."""
    return tf.random.stateless_uniform(partition_shape or shape, (1, (partition_offset or [0])[0]))


class Table(tf.Module):
    """One embedding."""

    def __init__(self) -> None:
        super().__init__()
        shape = (rows, WIDTH)
        value = functools.partial(initial, shape)
        self.embedding = tf.Variable(value, shape=shape, dtype=tf.float32)

    def update(self, ids):
        """Reads and changes some rows."""
        found = tf.nn.embedding_lookup(self.embedding, ids)
        self.embedding.scatter_sub(tf.IndexedSlices(0.01 * found, ids))
        return tf.reduce_mean(found)


def peak(pid: int | str = "self") -> float:
    """Returns the most resident memory that a process had so far, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6


with strategy.scope():
    table = Table()
run = TrainingRun(
    model=table,
    strategy=strategy,
    dataset=tf.data.Dataset.random(seed=3).map(lambda n: n % rows).batch(max(1, rows // 100)),
    total_steps=options.steps,
    save_every_steps=4,
    saving=SaveOptions(background=options.background),
)
step = run.function(table.update)
built = peak()
batches = iter(run)
began = time.perf_counter()
# The start restores the newest checkpoint, if there is one.
batch = next(batches)
started = time.perf_counter() - began
step(batch)
for batch in batches:
    step(batch)
grown = peak() - built
directory = RunDirectory(run.directory)
records = [packed.unpack() for packed in Records(directory).look().values()]
costs = [record.cost for record in records if record.cost is not None]
servers = [peak(worker.pid) for worker in read_workers(directory) if worker.job == "ps"]
newest = tf.train.latest_checkpoint(run.directory)
began = time.perf_counter()
tf.train.Checkpoint(model=table).read(newest).assert_existing_objects_matched()
read = time.perf_counter() - began
found = {
    "grown": grown,
    # Seconds until the first batch, and of a read by TensorFlow alone.
    "started": started,
    "read": read,
    "server": max(servers),
    # The last save of a run is in the foreground.
    "stall": [cost.stall_seconds for cost in costs if cost.background is options.background],
}
options.output.write_text(json.dumps(found))
