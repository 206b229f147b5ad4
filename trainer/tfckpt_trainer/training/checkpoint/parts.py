"""Writes the shared state in parts, by one worker or by all, apart from the taking of values."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from tfckpt_trainer.bundle.index import shard_path
from tfckpt_trainer.bundle.object_graph import KEY
from tfckpt_trainer.training.checkpoint.layout import CheckpointLayout, Snapshot
from tfckpt_trainer.training.checkpoint.shards import Extent, Shard, divide
from tfckpt_trainer.training.checkpoint.variables import raw_variable


class Parts:
    """Who writes which tensors of a checkpoint into which file; the same on all workers."""

    def __init__(
        self, root: tf.train.Checkpoint, *, writers: int, writer: int, largest: int | None
    ) -> None:
        """Divides what `root` holds.

        Args:
            root: What is saved.
            writers: How many workers write.
            writer: Which of them this is; a number beyond writes nothing.
            largest: Bytes of tensors in one file, at most.

        Raises:
            UsageError: Something beside variables in it has a value.
        """
        self._layout = CheckpointLayout(root)
        self._extents = {
            key: _extent_of(variable) for key, variable in self._layout.variables.items()
        }
        divided = divide(self._extents, writers, largest)
        self.count = sum(len(shards) for shards in divided)
        first = sum(len(shards) for shards in divided[:writer])
        own = divided[writer] if writer < writers else ()
        self._own = dict(enumerate(own, first))

    @property
    def has_any(self) -> bool:
        """Whether this worker writes some."""
        return bool(self._own)

    def take(self) -> Snapshot:
        """Returns the values of now."""
        return self._layout.take()

    def write(self, snapshot: Snapshot, prefix: Path) -> list[Path]:
        """Writes this worker's parts of the checkpoint that `prefix` will be.

        Returns:
            The prefixes of what it wrote, each a bundle of its own.
        """
        written = []
        for number, shard in self._own.items():
            part = self._part(prefix, number)
            self._write_part(snapshot, shard, part, with_graph=number == 0)
            written.append(part)
        return written

    def merge(self, prefix: Path) -> dict[str, str]:
        """Makes one checkpoint of all parts, once all are written; no tensor is read again.

        Returns:
            The names of its data files by the names that they had as parts.
        """
        parts = [self._part(prefix, number) for number in range(self.count)]
        if self.count > 1:
            tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=[str(part) for part in parts],
                destination_prefix=str(prefix),
                delete_old_dirs=False,
            )
        return {
            shard_path(part, 0, 1).name: shard_path(prefix, number, self.count).name
            for number, part in enumerate(parts)
        }

    def _part(self, prefix: Path, number: int) -> Path:
        if self.count == 1:
            return prefix
        return prefix.with_name(f"{prefix.name}.part-{number:05d}")

    def _write_part(
        self, snapshot: Snapshot, shard: Shard, part: Path, *, with_graph: bool
    ) -> None:
        names, slices, tensors = [], [], []
        for piece in shard:
            tensor = snapshot.tensors[piece.key]
            names.append(piece.key)
            slices.append(piece.specification(self._extents[piece.key].shape))
            rows = piece.rows
            tensors.append(tensor if rows is None else tensor[piece.begin : piece.begin + rows])
        if with_graph:
            names.append(KEY)
            slices.append("")
            tensors.append(tf.constant(snapshot.graph))
        with tf.device("/CPU:0"):
            tf.raw_ops.SaveV2(
                prefix=str(part), tensor_names=names, shape_and_slices=slices, tensors=tensors
            )


def _extent_of(variable: object) -> Extent:
    raw = raw_variable(variable)
    return Extent(tuple(raw.shape.as_list()), int(raw.dtype.size or 0))
