"""Runs inside the training process: the training loop, saving, restoring and Keras support.

This is the only part of the library that imports TensorFlow. Code that works without it belongs
in `catalog`, `bundle` or `rundir`.
"""

from __future__ import annotations

import gc
from importlib.util import find_spec

if find_spec("tensorflow") is None:
    raise ModuleNotFoundError(
        "tfckpt_trainer.training needs TensorFlow, which is not installed here. Run "
        "`pip install tensorflow`, or `pip install 'tfckpt-tui[cpu]'` on a machine without a GPU.",
        name="tensorflow",
    )

from tensorflow.python.framework import ops

from tfckpt_trainer.cluster.strategy_names import StrategyName
from tfckpt_trainer.training.checkpoint.saves.save_options import SaveOptions
from tfckpt_trainer.training.keras.callback import SteeringCallback
from tfckpt_trainer.training.keras.fit import fit
from tfckpt_trainer.training.loop.save_schedule import SaveWhen
from tfckpt_trainer.training.loop.training_run import TrainingRun
from tfckpt_trainer.training.process.open_runs import request_stop
from tfckpt_trainer.training.start.start_heartbeat import report_import
from tfckpt_trainer.training.start.strategies import create_strategy

__all__ = [
    "SaveOptions",
    "SaveWhen",
    "SteeringCallback",
    "StrategyName",
    "TrainingRun",
    "create_strategy",
    "fit",
    "request_stop",
]

# Excludes the modules of TensorFlow and Keras from garbage collection. Scanning them takes 0.1 s
# per full collection and 0.7 s at exit. Variables and tables that the script created before this
# import would be excluded too, and state that is not saved is searched for among the objects of
# the collector. TensorFlow counts what it creates.
if ops.uid() == 0:
    gc.freeze()

report_import()
