"""Make a TensorFlow training script steerable, and read its checkpoints without TensorFlow."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfckpt_trainer.training import TrainingRun

__version__ = "0.1.0"

__all__ = ["TrainingRun", "__version__"]


def __getattr__(name: str) -> object:
    # TrainingRun needs TensorFlow, which costs seconds; everything else here must not.
    if name == "TrainingRun":
        from tfckpt_trainer.training import TrainingRun

        return TrainingRun
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
