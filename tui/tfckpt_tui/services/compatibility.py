"""Whether a checkpoint has the variables that the run trains, told from indexes alone."""

from __future__ import annotations

from dataclasses import dataclass

from tfckpt_trainer.bundle.analysis.compare import Difference, TensorComparison
from tfckpt_trainer.bundle.dtypes import format_shape
from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.services.compare import compare_checkpoints

_MISFITS = {Difference.ADDED, Difference.REMOVED, Difference.SHAPE, Difference.DTYPE}


@dataclass(frozen=True)
class Fit:
    """How well one checkpoint fits what the run saved last.

    Attributes:
        like: The checkpoint that stands for what the run trains now.
        misfits: A sentence for each variable that does not fit.
    """

    like: str
    misfits: tuple[str, ...]


def fit_of(run: RunDirectory, like: Checkpoint, target: Checkpoint) -> Fit:
    """Holds the variables of `target` against those of a checkpoint that the run lately wrote.

    The trainer holds them against its live objects once more before it restores.

    Raises:
        BundleError: An index is damaged.
        TfckptError: There is none.
        OSError: It cannot be read.
    """
    found = compare_checkpoints(run, like, target)
    return Fit(
        like.name,
        tuple(
            _misfit(found.titles.get(one.name, one.name), one)
            for one in found.tensors
            if one.difference in _MISFITS
        ),
    )


def _misfit(title: str, one: TensorComparison) -> str:
    if one.before is None:
        return f"{title} is in the checkpoint and not in the model"
    if one.after is None:
        return f"{title} is missing in the checkpoint"
    if one.difference is Difference.DTYPE:
        return f"{title} is {one.after.dtype} there and {one.before.dtype} in the model"
    shapes = [format_shape(entry.shape) for entry in (one.after, one.before)]
    return f"{title} is {shapes[0]} there and {shapes[1]} in the model"
