"""Compare the variables of a checkpoint with those of the model, from the indexes alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tfckpt_trainer.bundle.analysis.compare import TensorComparison, TensorDifference
from tfckpt_trainer.bundle.dtypes import format_shape
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, is_derived
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.words.counts import first_lines
from tfckpt_tui.services.checkpoints.compare import compare_checkpoints

_MOST_MISMATCHES = 5
_MISMATCHES = {
    TensorDifference.ADDED,
    TensorDifference.REMOVED,
    TensorDifference.SHAPE,
    TensorDifference.DTYPE,
}


@dataclass(frozen=True)
class Compatibility:
    """Whether a checkpoint has the variables of the model in training.

    Attributes:
        reference: The name of the checkpoint that represents the model.
        mismatches: A sentence for each variable that does not match.
    """

    reference: str
    mismatches: tuple[str, ...]

    @property
    def listed(self) -> list[str]:
        """The first mismatches, and how many more there are."""
        return first_lines(self.mismatches, _MOST_MISMATCHES)


def find_reference(checkpoints: Iterable[Checkpoint]) -> Checkpoint | None:
    """Returns the checkpoint that represents the model; None if none can be restored.

    It is the one that a start continues from. If that was made from others, it is the newest one
    that training saved.
    """
    sound = (checkpoint for checkpoint in checkpoints if checkpoint.restorable)
    return min(sound, key=lambda c: (is_derived(c), not c.is_head), default=None)


def check_compatibility(
    run: RunDirectory, reference: Checkpoint, target: Checkpoint
) -> Compatibility:
    """Compares the variables of `target` with those of a recent checkpoint of the run.

    The trainer compares them with the live model again before it restores.

    Raises:
        BundleError: An index is damaged.
        TfckptError: There is no index.
        OSError: An index cannot be read.
    """
    comparison = compare_checkpoints(run, reference, target, as_restored=True)
    return Compatibility(
        reference.name,
        tuple(
            _mismatch(comparison.titles.get(tensor.name, tensor.name), tensor)
            for tensor in comparison.tensors
            if tensor.difference in _MISMATCHES
        ),
    )


def _mismatch(title: str, tensor: TensorComparison) -> str:
    if tensor.before is None:
        return f"{title} is in the checkpoint but not in the model"
    if tensor.after is None:
        return f"{title} is in the model but not in the checkpoint"
    if tensor.difference is TensorDifference.DTYPE:
        return (
            f"{title} is {tensor.after.dtype} in the checkpoint "
            f"and {tensor.before.dtype} in the model"
        )
    shapes = [format_shape(entry.shape) for entry in (tensor.after, tensor.before)]
    return f"{title} is {shapes[0]} in the checkpoint and {shapes[1]} in the model"
