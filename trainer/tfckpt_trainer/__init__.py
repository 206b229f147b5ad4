"""The training library: saves, restores, verifies and prunes TensorFlow checkpoints.

Code that needs a terminal belongs in `tfckpt_tui`. Only `training` and `examples` import
TensorFlow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt_trainer.version import __version__

if TYPE_CHECKING:
    from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
    from tfckpt_trainer.catalog.retention.own_rules import RetentionRule
    from tfckpt_trainer.catalog.retention.policy import Policy
    from tfckpt_trainer.catalog.retention.rules import BestBy
    from tfckpt_trainer.errors import TfckptError
    from tfckpt_trainer.training import SaveOptions, SaveWhen, TrainingRun, fit

__all__ = [
    "BestBy",
    "Checkpoint",
    "Policy",
    "RetentionRule",
    "SaveOptions",
    "SaveWhen",
    "TfckptError",
    "TrainingRun",
    "__version__",
    "fit",
]

_MODULES = {
    "BestBy": "tfckpt_trainer.catalog.retention.rules",
    "Checkpoint": "tfckpt_trainer.catalog.directory.checkpoints",
    "Policy": "tfckpt_trainer.catalog.retention.policy",
    "RetentionRule": "tfckpt_trainer.catalog.retention.own_rules",
    "SaveOptions": "tfckpt_trainer.training",
    "SaveWhen": "tfckpt_trainer.training",
    "TfckptError": "tfckpt_trainer.errors",
    "TrainingRun": "tfckpt_trainer.training",
    "fit": "tfckpt_trainer.training",
}


def __getattr__(name: str) -> object:
    # Importing TensorFlow takes seconds, so only the names that need it import it.
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
