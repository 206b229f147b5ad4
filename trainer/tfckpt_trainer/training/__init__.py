"""Inside the training process: the only package that imports TensorFlow."""

from __future__ import annotations

import gc

from tfckpt_trainer.strategy_names import StrategyName
from tfckpt_trainer.training.checkpoint.save_options import SaveOptions
from tfckpt_trainer.training.keras.callback import SteeringCallback
from tfckpt_trainer.training.keras.fit import fit
from tfckpt_trainer.training.loop.training_run import TrainingRun
from tfckpt_trainer.training.strategies import create_strategy

__all__ = [
    "SaveOptions",
    "SteeringCallback",
    "StrategyName",
    "TrainingRun",
    "create_strategy",
    "fit",
]

# Modules of TensorFlow and Keras make up most of what the garbage collector looks at: 0.1 s in
# each full collection, and 0.7 s at the end of the process. They are never garbage.
gc.freeze()
