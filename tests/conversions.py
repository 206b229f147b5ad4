"""Writes an array file as a checkpoint by its prefix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tfckpt_trainer.bundle.exchange.convert import Conversion, write_arrays
from tfckpt_trainer.bundle.writing.bundle_writer import BundleWriter
from tfckpt_trainer.tools.tensors.convert_like import LikeConversion, write_arrays_like
from tfckpt_trainer.tools.tensors.edit import EditSource


def write_checkpoint(
    source: Path, prefix: Path, *, shard_size: int | None = None, **options: Any
) -> Conversion:
    with BundleWriter(prefix, shard_size=shard_size) as writer:
        done = write_arrays(writer, source, **options)
        writer.commit()
    return done


def write_checkpoint_like(source: Path, prefix: Path, like: EditSource) -> LikeConversion:
    with BundleWriter(prefix) as writer:
        done = write_arrays_like(writer, source, like)
        writer.commit()
    return done
