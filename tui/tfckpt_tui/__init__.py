"""The terminal app, the command-line interface, and readers for Python, without TensorFlow.

Code that a training process needs too belongs in `tfckpt_trainer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt_trainer.late import late_names

if TYPE_CHECKING:
    from tfckpt_tui.reading.checkpoint_reader import CheckpointReader, TensorInfo, open_checkpoint
    from tfckpt_tui.reading.run_reader import MetricCurve, RunReader, open_run

__all__ = [
    "CheckpointReader",
    "MetricCurve",
    "RunReader",
    "TensorInfo",
    "open_checkpoint",
    "open_run",
]

_MODULES = {
    "CheckpointReader": "tfckpt_tui.reading.checkpoint_reader",
    "MetricCurve": "tfckpt_tui.reading.run_reader",
    "RunReader": "tfckpt_tui.reading.run_reader",
    "TensorInfo": "tfckpt_tui.reading.checkpoint_reader",
    "open_checkpoint": "tfckpt_tui.reading.checkpoint_reader",
    "open_run": "tfckpt_tui.reading.run_reader",
}

# Commands and the app start faster without NumPy, and never need the readers.
__getattr__ = late_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
