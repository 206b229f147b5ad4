"""Trains nothing: saves so many times with TensorFlow's own manager and says what it then knows."""

from __future__ import annotations

import json
import sys

import tensorflow as tf

directory, saves, kept = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
hours = float(sys.argv[4]) if len(sys.argv) > 4 else None
checkpoint = tf.train.Checkpoint(value=tf.Variable([0.0, 0.0]), step=tf.Variable(0))
manager = tf.train.CheckpointManager(
    checkpoint, directory, max_to_keep=kept, keep_checkpoint_every_n_hours=hours
)
restored = manager.restore_or_initialize()
for _ in range(saves):
    checkpoint.step.assign_add(1)
    manager.save()
names = [path.rsplit("/", 1)[1] for path in manager.checkpoints]
print(json.dumps({"restored": restored, "step": int(checkpoint.step), "known": names}))
