"""What changed between two checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tfckpt_trainer.bundle.compare import Change, Compared, Difference, change, compare
from tfckpt_trainer.bundle.index import Index, read_index
from tfckpt_trainer.catalog.checkpoints import Checkpoint
from tfckpt_trainer.rundir.paths import RunDirectory


@dataclass(frozen=True)
class Comparison:
    """Two checkpoints and how each of their tensors differs."""

    before: Checkpoint
    after: Checkpoint
    tensors: tuple[Compared, ...]
    indexes: tuple[Index, Index]

    def count(self, difference: Difference) -> int:
        """Returns how many tensors differ in this way."""
        return sum(one.difference is difference for one in self.tensors)


def compare_checkpoints(run: RunDirectory, before: Checkpoint, after: Checkpoint) -> Comparison:
    """Compares two checkpoints by their indexes alone.

    Raises:
        BundleError: An index is damaged.
        FileNotFoundError: There is none.
    """
    indexes = read_index(run.root / before.name), read_index(run.root / after.name)
    return Comparison(before, after, compare(*indexes), indexes)


def changes(run: RunDirectory, compared: Comparison) -> Iterator[Change]:
    """Reads what changed and says by how much, tensor by tensor.

    Raises:
        BundleError: A tensor is not where it should be.
        FileNotFoundError: A data file is missing.
    """
    prefixes = run.root / compared.before.name, run.root / compared.after.name
    for one in compared.tensors:
        if one.difference is Difference.CHANGED:
            found = change(prefixes, compared.indexes, one)
            if found is not None:
                yield found
