"""Saves that fail, each in another way; prints as JSON which of them found the disk full."""

from __future__ import annotations

import errno
import json
import os
import sys
from contextlib import suppress
from unittest import mock

import keras
import tensorflow as tf

from tfckpt_trainer import TrainingRun
from tfckpt_trainer.training.checkpoint.saves import disk_space

directory = sys.argv[1]
CHECKPOINT = "tfckpt_trainer.training.checkpoint"
# What the kernel says on a machine that speaks another language.
NO_ROOM = OSError(errno.ENOSPC, "Auf dem Gerät ist kein Speicherplatz mehr verfügbar")
QUOTA = OSError(errno.EDQUOT, "Der zugewiesene Plattenplatz ist überschritten")
# The path of the directory says that there is no space left.
OTHER = OSError(errno.EIO, "Input/output error", f"{directory}/ckpt-0.index")
MEMORY = tf.errors.ResourceExhaustedError(
    None, None, f"OOM when allocating tensor; it was to be written to {directory}/ckpt-0"
)

CASES = {
    # The first save of a process is TensorFlow's; it tells the layout of later ones.
    "no memory for TensorFlow": ("state.SharedState.write", MEMORY),
    "no room for the manifest": ("saves.saver.begin_save", NO_ROOM),
    "no room for a part": ("saves.worker_part.sync_file", NO_ROOM),
    "quota at the commit": ("saves.saver.commit_save", QUOTA),
    "error of the disk at the beginning": ("saves.saver.begin_save", OTHER),
    "error of the disk in a part": ("saves.worker_part.sync_file", OTHER),
    "error of the disk at the commit": ("saves.saver.commit_save", OTHER),
    "no memory": ("saves.sharded_writer.ShardedWriter.snapshot", MEMORY),
}

disk_space.MARGIN_BYTES = -(1 << 30)
model = keras.Sequential([keras.Input((100,)), keras.layers.Dense(2000)])
run = TrainingRun(directory, model=model, optimizer=keras.optimizers.SGD(), total_steps=1)
full = {}


def save_on_full_disk():
    """Saves where there is room for the manifest alone."""
    place = f"{directory}/filler"
    with suppress(OSError), open(place, "wb", buffering=0) as filler:
        while filler.write(bytes(1 << 14)):
            pass
    os.truncate(place, os.path.getsize(place) - (1 << 18))
    outcome = run._saves.save_now("full")
    os.unlink(place)
    return outcome


for _ in run:
    first = save_on_full_disk()
    for case, (target, error) in CASES.items():
        with mock.patch(f"{CHECKPOINT}.{target}", side_effect=error):
            outcome = run._saves.save_now(case)
        assert outcome.name is None, case
        full[case] = outcome.disk_full
    full["TensorFlow"] = first.disk_full
    full["a known layout"] = save_on_full_disk().disk_full
    print(json.dumps({"full": full, "words": first.problem}))
    break
