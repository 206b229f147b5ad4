"""Preemption of runs that are not in the main thread, where Python sets no signal handlers."""

from __future__ import annotations

import threading
from collections.abc import Callable

import tensorflow as tf

_KEY = "TF_DEFAULT_PREEMPTION_NOTICE_KEY"


def on_preemption_of_cluster(act: Callable[[str], None]) -> None:
    """Calls `act`, in a thread of its own, when SIGTERM reaches any worker of a cluster.

    A multi-worker strategy has a signal handler of its own, which tells all workers. In the main
    thread ours replaces it. There is no public API for it.

    Args:
        act: Called with a sentence that names the worker.
    """
    threading.Thread(target=_wait, args=(act,), name="tfckpt-preemption", daemon=True).start()


def _wait(act: Callable[[str], None]) -> None:
    from tensorflow.python.eager import context

    try:
        worker = context.context().get_config_key_value(_KEY)
    except tf.errors.OpError:
        # The cluster has ended.
        return
    act(f"SIGTERM reached {worker}")
