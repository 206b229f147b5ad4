"""Guards: rules that act on a run while it trains, without a person.

A guard is a condition and actions. This package judges values and proposes commands; it carries
none out and reads no clock. That is the part of `training`, which all workers do together.
"""

from tfckpt_trainer.guards.actions import (
    Action,
    GoBack,
    Notify,
    Pause,
    Save,
    Scale,
    Set,
    SkipBatches,
    Stop,
)
from tfckpt_trainer.guards.conditions import Condition, Evidence, NotFinite, StepReading
from tfckpt_trainer.guards.guard import Guard

__all__ = [
    "Action",
    "Condition",
    "Evidence",
    "GoBack",
    "Guard",
    "NotFinite",
    "Notify",
    "Pause",
    "Save",
    "Scale",
    "Set",
    "SkipBatches",
    "StepReading",
    "Stop",
]
