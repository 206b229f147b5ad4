"""Stores variables that a `tf.train.Checkpoint` does not track, by their paths.

Any program reads them with `tf.train.load_checkpoint(prefix).get_tensor(path)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.training.state.adapted import KEYS
from tfckpt_trainer.training.state.comparison import (
    StateComparison,
    VariableMatch,
    assign_values,
    describe_difference,
    stored_values,
)
from tfckpt_trainer.training.state.variables import HOST, raw_variable, replicas_of
from tfckpt_trainer.training.state.walk import Found

UNTRACKED = "untracked"
"""Name of the file, in the directory of the workers' own files."""


def untracked_variables(states: Iterable[Found]) -> list[Found]:
    """Returns the variables that a `tf.train.Checkpoint` would leave out."""
    return [state for state in states if state.rule.is_variable and not state.tracked]


def read_values(states: Iterable[Found]) -> dict[str, tf.Tensor]:
    """Returns one value of each variable: the first replica's, or the reduced one.

    Reading an on-read variable is a collective: all workers call this together.
    """
    with tf.device(HOST):
        return {state.path: tf.identity(_value_of(state)) for state in states}


def write_values(prefix: Path, values: Mapping[str, tf.Tensor]) -> None:
    """Writes the result of `read_values` under `prefix`."""
    with tf.device(HOST):
        tf.raw_ops.SaveV2(
            prefix=str(prefix),
            tensor_names=list(values),
            shape_and_slices=[""] * len(values),
            tensors=list(values.values()),
        )


def compare_values(states: Iterable[Found], prefix: Path) -> StateComparison:
    """Compares the variables with the values at `prefix`; changes nothing.

    Raises:
        BundleError: The file is damaged.
        FileNotFoundError: There is none.
    """
    index = read_index(prefix)
    live = {state.path: state.thing for state in states}
    present = {path: thing for path, thing in live.items() if path in index.entries}
    differences = {path: describe_difference(path, thing, index) for path, thing in present.items()}
    return StateComparison(
        matched=tuple(
            VariableMatch(path, thing) for path, thing in present.items() if not differences[path]
        ),
        missing=tuple(path for path in live if path not in present),
        extra=tuple(p for p in index.entries if p not in live and not p.startswith(KEYS)),
        different={path: text for path, text in differences.items() if text},
    )


def restore_values(prefix: Path, matches: Sequence[VariableMatch]) -> None:
    """Restores variables in place, on every replica of this worker."""
    assign_values(matches, stored_values(prefix, matches))


def _value_of(state: Found) -> Any:
    raw = raw_variable(state.thing)
    return raw.read_value() if state.rule.is_on_read else tf.convert_to_tensor(replicas_of(raw)[0])
