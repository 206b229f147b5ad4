"""Saves a checkpoint in a thread of TensorFlow, and prints its path when it is written."""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

random = np.random.RandomState(0)
checkpoint = tf.train.Checkpoint(
    a=tf.Variable(random.randn(100, 7)), b=tf.Variable(random.randn(33).astype("float32"))
)
options = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
path = checkpoint.save(str(Path(sys.argv[1]) / "ckpt"), options=options)
checkpoint.sync()
print(path)
