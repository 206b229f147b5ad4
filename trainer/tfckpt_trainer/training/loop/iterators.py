"""Destroys tf.data iterators where nobody waits for it, and renews those that are restored.

The destructor of an iterator waits for a thread of tf.data that adjusts the pipeline. It wakes
that thread, but the thread may miss it: TensorFlow 2.21 notifies it before it sets the flag that
the thread looks at. Then the destructor waits for the next time that the thread wakes by itself.
Those pauses double from 10 ms to 60 s, so the older the iterator, the longer the wait.
Restoring a position into an iterator that ran destroys what it was, and waits as long.
"""

from __future__ import annotations

import ctypes
import gc
import threading

import tensorflow as tf

from tfckpt_trainer.training.checkpoint.variables import live_objects

QUIET_SECONDS = 0.05
"""How long `drop` waits for the destructor; one that takes longer missed its wake-up."""


def renew_all(root: tf.train.Checkpoint) -> None:
    """Begins each iterator anew that `root` tracks, to restore a position into it.

    What the iterator was goes first: iterators of one dataset share the seeds of its shuffles,
    and what the old one still reads ahead would change those of the new one.
    """
    for _, thing in list(live_objects(root)):
        dataset = getattr(thing, "_dataset", None)
        if isinstance(thing, tf.data.Iterator) and dataset is not None:
            drop(thing)
            thing._iterator_resource = iter(dataset)._iterator_resource


def drop(iterator: tf.data.Iterator) -> None:
    """Destroys an iterator of this process in a thread of its own; it cannot be used any more.

    When this returns, the iterator is gone, or it has stopped to read and its thread only waits:
    for a minute at most, in which its buffers stay in memory.

    Args:
        iterator: What `iter` made of a `tf.data.Dataset`, outside a distribution strategy.
    """
    resource = getattr(iterator, "_iterator_resource", None)
    if resource is None:
        return
    # Whatever else refers to the iterator, such as a checkpoint, must not keep its resource: the
    # garbage collector would destroy it in any thread.
    iterator._iterator_resource = None
    held = [resource]
    del resource
    thread = threading.Thread(target=held.clear, name="tfckpt-drop-iterator", daemon=True)
    thread.start()
    thread.join(QUIET_SECONDS)


def keep_resources() -> None:
    """Has the end of the process destroy no resource of TensorFlow that lives now.

    Their memory goes with the process anyway, and iterators that the script or Keras made would
    hold it up.
    """
    tensor_type = tf.__internal__.EagerTensor
    for thing in gc.get_objects():
        if type(thing) is tensor_type and thing.dtype == tf.resource:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
