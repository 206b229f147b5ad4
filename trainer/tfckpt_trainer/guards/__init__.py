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
from tfckpt_trainer.guards.conditions import (
    Above,
    Below,
    Condition,
    DiskFull,
    Evidence,
    NoCheckpoint,
    NoImprovement,
    NotFinite,
    SlowSteps,
    Spike,
    StepReading,
)
from tfckpt_trainer.guards.guard import Guard

__all__ = [
    "Above",
    "Action",
    "Below",
    "Condition",
    "DiskFull",
    "Evidence",
    "GoBack",
    "Guard",
    "NoCheckpoint",
    "NoImprovement",
    "NotFinite",
    "Notify",
    "Pause",
    "Save",
    "Scale",
    "Set",
    "SkipBatches",
    "SlowSteps",
    "Spike",
    "StepReading",
    "Stop",
]
