"""Writes the shared state to one file in the foreground: at first TensorFlow does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.training.checkpoint.saves.sharded_writer import CheckpointLayout, ShardedWriter
from tfckpt_trainer.training.checkpoint.state import SharedState
from tfckpt_trainer.training.state.walk import FoundState


class WholeWriter:
    """Writes the shared state, in the foreground and on one worker.

    `tf.train.Checkpoint.write` examines each object anew. Its first file tells the layout, by which
    later saves are written until an object is added or removed. The layout is only used if the
    values that it leads to were those in the file. So TensorFlow always writes lookup tables, for
    example.
    """

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._structure: tuple[Any, ...] | None = None
        self._writer: ShardedWriter | None = None

    def write(self, prefix: Path, found: FoundState, checksums: Mapping[int, int]) -> None:
        """Writes the values of this step, without a flush.

        Args:
            prefix: Path without suffix.
            found: All state of the script.
            checksums: Those that are known, as `ShardedWriter.write` takes them.
        """
        if self._structure == found.structure and self._writer is not None:
            self._writer.write(self._writer.snapshot(), prefix, checksums)
            return
        self._shared.write(prefix)
        if self._structure != found.structure:
            self._structure, self._writer = found.structure, self._learn(prefix)

    def _learn(self, prefix: Path) -> ShardedWriter | None:
        """Returns a writer by the layout of a file of TensorFlow; None if it has other values."""
        index = read_index(prefix)
        layout = CheckpointLayout(self._shared.checkpoint, prefix)
        if index.shard_count > 1 or not layout.describes(index):
            return None
        return ShardedWriter(layout, writers=1, writer=0, largest=None)
