"""Inside the training process: the only package that imports TensorFlow."""

from __future__ import annotations

from tfckpt_trainer.strategy_names import StrategyName
from tfckpt_trainer.training.callback import SteeringCallback
from tfckpt_trainer.training.fitting import fit
from tfckpt_trainer.training.options import SaveOptions
from tfckpt_trainer.training.run import TrainingRun
from tfckpt_trainer.training.strategies import create_strategy

__all__ = [
    "SaveOptions",
    "SteeringCallback",
    "StrategyName",
    "TrainingRun",
    "create_strategy",
    "fit",
]
