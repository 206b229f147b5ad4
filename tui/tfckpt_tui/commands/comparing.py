"""What changed between two checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tfckpt_trainer.bundle.compare import Change, Compared, Difference, change, compare
from tfckpt_trainer.bundle.index import Index, read_index
from tfckpt_trainer.catalog.checkpoints import Checkpoint
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.commands.inspecting import variables_of


@dataclass(frozen=True)
class Comparison:
    """Two checkpoints and how each of their tensors differs.

    Attributes:
        titles: What tensors are in the program that saved them, by their names.
    """

    before: Checkpoint
    after: Checkpoint
    tensors: tuple[Compared, ...]
    indexes: tuple[Index, Index]
    titles: Mapping[str, str]

    def count(self, difference: Difference) -> int:
        """Returns how many tensors differ in this way."""
        return sum(one.difference is difference for one in self.tensors)


def compare_checkpoints(run: RunDirectory, before: Checkpoint, after: Checkpoint) -> Comparison:
    """Compares two checkpoints by their indexes; beside them only object graphs are read.

    Raises:
        BundleError: An index is damaged.
        FileNotFoundError: There is none.
    """
    prefixes = run.root / before.name, run.root / after.name
    indexes = read_index(prefixes[0]), read_index(prefixes[1])
    titles: dict[str, str] = {}
    for prefix, index in zip(prefixes, indexes, strict=True):
        titles |= {variable.entry.name: variable.title for variable in variables_of(prefix, index)}
    return Comparison(before, after, compare(*indexes), indexes, titles)


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
