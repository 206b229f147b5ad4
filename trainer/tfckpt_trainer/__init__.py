"""The training library: saves, restores, verifies and prunes TensorFlow checkpoints.

Code that needs a terminal belongs in `tfckpt_tui`. Only `training` and `examples` import
TensorFlow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt_trainer.late import late_names
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

# Importing TensorFlow takes seconds, so only the names that need it import it.
__getattr__ = late_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
