"""Destroys tf.data iterators without waiting for them, and recreates those that are restored.

The destructor of an iterator waits for a thread of tf.data that tunes the pipeline. It wakes that
thread, but the thread may miss it: TensorFlow 2.21 notifies it before setting the flag that the
thread reads. Then the destructor waits until the thread wakes by itself. Its pauses double from
10 ms to 60 s, so the older the iterator, the longer the wait. Restoring a position into a used
iterator destroys its old state, and waits as long.
"""

from __future__ import annotations

import ctypes
import gc
import threading

import tensorflow as tf

from tfckpt_trainer.training.state.variables import live_objects

DESTROY_SECONDS = 0.05
"""How long `destroy_iterator` waits for the destructor; a slower one missed its wake-up."""


def recreate_iterators(root: tf.train.Checkpoint) -> None:
    """Recreates each iterator that `root` tracks, so that a position can be restored into it.

    The old one goes first: iterators of one dataset share the seeds of its shuffles, and reading
    ahead in the old one would change those of the new one.
    """
    for _, thing in list(live_objects(root)):
        if isinstance(thing, tf.data.Iterator):
            recreate_iterator(thing)


def recreate_iterator(iterator: tf.data.Iterator) -> None:
    """Starts an iterator of a dataset again, in place; the old one is destroyed in a thread."""
    dataset = getattr(iterator, "_dataset", None)
    if dataset is not None:
        destroy_iterator(iterator)
        iterator._iterator_resource = iter(dataset)._iterator_resource


def destroy_iterator(iterator: tf.data.Iterator) -> None:
    """Destroys an iterator of this process in a separate thread; it cannot be used any more.

    On return, the iterator is gone, or it has stopped reading and its thread waits. That takes up
    to a minute, during which its buffers stay in memory.

    Args:
        iterator: `iter(dataset)` of a `tf.data.Dataset`, created outside a distribution strategy.
    """
    resource = getattr(iterator, "_iterator_resource", None)
    if resource is None:
        return
    # Other references to the iterator, such as a checkpoint's, must not keep its resource: the
    # garbage collector would destroy it in any thread.
    iterator._iterator_resource = None
    held = [resource]
    del resource
    thread = threading.Thread(target=held.clear, name="tfckpt-drop-iterator", daemon=True)
    thread.start()
    thread.join(DESTROY_SECONDS)


def keep_resources_at_exit() -> None:
    """Prevents the exit of the process from destroying TensorFlow resources that exist now.

    Their memory goes with the process anyway. Destroying iterators of the script or of Keras
    would delay the exit.
    """
    tensor_type = tf.__internal__.EagerTensor
    for thing in gc.get_objects():
        if type(thing) is tensor_type and thing.dtype == tf.resource:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
