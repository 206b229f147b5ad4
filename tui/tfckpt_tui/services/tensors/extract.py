"""Extracts tensors of a checkpoint into a file, and converts such a file into a checkpoint."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfckpt_trainer.bundle.analysis.contents import Variable
from tfckpt_trainer.bundle.analysis.tensor_names import find_tensors, match_tensors
from tfckpt_trainer.bundle.exchange.convert import Conversion, write_checkpoint
from tfckpt_trainer.bundle.exchange.extract import ArrayFormat, Extraction, extract_tensors
from tfckpt_trainer.bundle.tensors import is_numeric
from tfckpt_trainer.catalog.derived import require_free_name
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.services.inspect import Inspection


@dataclass(frozen=True)
class Choice:
    """The tensors to extract.

    Attributes:
        variables: Those that can be extracted.
        left_out: Those whose elements are not numbers.
    """

    variables: tuple[Variable, ...]
    left_out: tuple[Variable, ...]

    @property
    def size(self) -> int:
        """Bytes of the tensors to extract."""
        return sum(variable.size for variable in self.variables)


def choose_tensors(found: Inspection, wanted: Sequence[str]) -> Choice:
    """Returns the tensors with these names, paths or patterns such as `model/*`; or all.

    Raises:
        UsageError: There is none, or one that was named is not numeric.
    """
    if not wanted:
        numeric = tuple(v for v in found.variables if is_numeric(v.entry))
        return Choice(numeric, tuple(v for v in found.variables if not is_numeric(v.entry)))
    chosen: dict[str, Variable] = {}
    left_out: dict[str, Variable] = {}
    for text in wanted:
        exact = find_tensors(found.variables, text)
        matched = exact or match_tensors(found.variables, text)
        if not matched:
            name = found.checkpoint.name
            raise UsageError(
                f"{name} has no tensor {text!r}; list its tensors with "
                f"`tfckpt-tui inspect RUN {shlex.quote(name)}`."
            )
        for variable in matched:
            if is_numeric(variable.entry):
                chosen[variable.entry.name] = variable
            elif exact:
                raise UsageError(
                    f"{variable.path} is {variable.entry.dtype}; only numeric tensors can be "
                    "extracted."
                )
            else:
                left_out[variable.entry.name] = variable
    return Choice(tuple(chosen.values()), tuple(left_out.values()))


def extract(
    run: RunDirectory,
    found: Inspection,
    choice: Choice,
    path: Path,
    kind: ArrayFormat,
    on_read: Callable[[int], None] = lambda size: None,
) -> Extraction:
    """Writes the chosen tensors; see `extract_tensors`.

    Raises:
        UsageError: No tensor was chosen, or the index of the checkpoint cannot be read.
        TfckptError: A tensor is damaged, or the file cannot be written.
    """
    name = found.checkpoint.name
    if found.index is None:
        raise UsageError(f"{name} cannot be extracted: {found.problem}")
    if not choice.variables:
        raise UsageError(f"{name} has no numeric tensors.")
    tensors = {variable.path: variable.entry for variable in choice.variables}
    return extract_tensors(run.root / name, found.index, tensors, path, kind, on_read)


def convert(
    directory: Path,
    name: str,
    source: Path,
    *,
    by_name: bool = False,
    shard_size: int | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Conversion:
    """Writes checkpoint `name` from an array file; creates its directory if it is missing.

    Raises:
        UsageError: The name is no file name, or a tensor cannot be stored.
        RefusedError: The name is taken.
        TfckptError: The file is damaged.
        OSError: A file cannot be read or written.
    """
    root = Path(os.path.realpath(directory.expanduser()))
    require_free_name(RunDirectory(root), name)
    if not source.is_file():
        raise UsageError(f"{source} is not a file; name an npz or a safetensors file.")
    root.mkdir(parents=True, exist_ok=True)
    return write_checkpoint(
        source, root / name, by_name=by_name, shard_size=shard_size, on_progress=on_progress
    )
