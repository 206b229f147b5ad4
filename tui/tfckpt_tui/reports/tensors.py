"""What `inspect`, `compare` and `track` print about tensors."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from tfckpt_trainer.bundle.analysis.compare import TensorDifference
from tfckpt_trainer.bundle.analysis.contents import Role
from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState
from tfckpt_tui.reports.base import Report


class Bins(msgspec.Struct, frozen=True):
    """A histogram.

    Attributes:
        low: The lowest value.
        high: The highest value.
        counts: Number of elements in each of 16 equal parts of that range.
    """

    low: float
    high: float
    counts: tuple[int, ...]


class TensorStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of the elements of a tensor.

    Attributes:
        elements: How many it has.
        zeros: How many are zero.
        nan: How many are not a number.
        infinite: How many are infinite.
        minimum: Minimum of the finite elements; null if there are none.
        maximum: Maximum, likewise.
        mean: Mean, likewise.
        deviation: Standard deviation, likewise.
        norm: Square root of the sum of their squares.
        histogram: Counts of the finite elements; null if all are equal.
    """

    elements: int
    zeros: int
    nan: int
    infinite: int
    minimum: float | None
    maximum: float | None
    mean: float | None
    deviation: float | None
    norm: float | None
    histogram: Bins | None


class InspectedTensor(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor of a checkpoint.

    Attributes:
        name: As `tf.train.load_checkpoint` gives it.
        dtype: Its type, as TensorFlow names it: `float32`, `bfloat16`, `string`, …
        shape: Its dimensions.
        bytes: How much it takes.
        shard: Its data file; null if it was saved in parts.
        path: Its name in all commands: its path in the program that saved it, with the names of
            Keras.
        role: What it is for; `unknown` if the object graph cannot be read.
        slot_of: For a slot variable: the path of its variable.
        slot_name: For a slot variable: the name of the slot.
        problem: Damage that is known from the file size and the last `verify`; empty if none.
        statistics: Only with `--stats`. Null if the elements are not numbers, cannot be read, or do
            not match their checksum (`problem` says which). For complex numbers, all values except
            the counts refer to absolute values.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    shard: int | None
    path: str
    role: Role
    slot_of: str | None
    slot_name: str | None
    problem: str
    statistics: TensorStatistics | UnsetType | None = UNSET


class TensorTotal(msgspec.Struct, frozen=True):
    """The tensors of one part of a checkpoint.

    Attributes:
        tensors: Number of tensors; null if the index cannot be read.
        bytes: Their size; null likewise.
    """

    tensors: int | None = None
    bytes: int | None = None


class TensorTotals(msgspec.Struct, frozen=True):
    """The tensors of each part of a checkpoint.

    Attributes:
        model: The weights.
        optimizer: The optimizer, including slot variables.
        rest: All others, including `unknown` ones.
    """

    model: TensorTotal = TensorTotal()
    optimizer: TensorTotal = TensorTotal()
    rest: TensorTotal = TensorTotal()


class ResumedPart(msgspec.Struct, frozen=True):
    """A part of the training state.

    Attributes:
        what: A part of the training state.
        comes_back: Whether resuming restores it; null if the files do not say.
        how: Where it is, or what happens instead.
    """

    what: str
    comes_back: bool | None
    how: str


class InspectReport(Report, frozen=True, kw_only=True):
    """Exit code 1 if the checkpoint cannot be restored or something in it cannot be read. The
    document then contains what could be read. Tensors are sorted by path. Slot variables follow
    their variable.

    Attributes:
        checkpoint: Its name.
        step: As in `ls`.
        branch: As in `ls`.
        state: As in `ls`.
        problem: Why it cannot be restored, or what could not be read; empty if neither.
        object_graph: Whether it has an object graph; name-based checkpoints of TensorFlow 1 have
            none; null if it cannot be read.
        record: The [record](run-directory.md) of this library (`records/NAME.json`); null if there
            is none.
    """

    checkpoint: str
    step: int | None
    branch: int
    state: CheckpointState
    problem: str
    object_graph: bool | None
    tensors: tuple[InspectedTensor, ...]
    totals: TensorTotals
    resuming: tuple[ResumedPart, ...]
    record: dict[str, Any] | None


class FileTensor(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor of a file of Keras or safetensors.

    Attributes:
        name: Its path in the file.
        dtype: Its type.
        shape: Its dimensions.
        bytes: How much it takes.
        layer: The layers or the optimizer that it belongs to, if the file tells.
        problem: Only with `--stats`: why it cannot be read; empty if it can.
        statistics: Only with `--stats`; null if it cannot be read.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    layer: str | None
    problem: str | UnsetType = UNSET
    statistics: TensorStatistics | UnsetType | None = UNSET


class InspectFileReport(Report, frozen=True, kw_only=True):
    """What `inspect` prints about a file of Keras or safetensors. Exit code 1 if it is damaged.

    Attributes:
        file: Its name.
        format: As `other_files[].format` of `ls`.
        epoch: As in `ls`.
        step: As in `ls`.
        bytes: Its size.
        saved_at: When it was last written.
    """

    variant: ClassVar[str] = "FILE"

    file: str
    format: str
    epoch: int | None
    step: int | None
    bytes: int
    saved_at: float
    tensors: tuple[FileTensor, ...]


class TensorDistance(msgspec.Struct, frozen=True, kw_only=True):
    """By how much a tensor changed.

    Attributes:
        norm_before: In A.
        norm_after: In B.
        distance: Norm of the difference.
        relative: Distance divided by the norm in A; null if that norm is zero.
        not_finite: Elements that are not finite in A or B; they are left out.
    """

    norm_before: float | None
    norm_after: float | None
    distance: float | None
    relative: float | None
    not_finite: int


class ComparedTensor(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor of A, B or both.

    Attributes:
        name: As in `inspect` of B, or of A if B does not have it.
        path: As in `inspect`.
        difference: How it differs.
        unknown: Whether it may be equal: it was split differently, so checksums cannot be compared.
        dtype: Its type in A and in B; null if it is missing.
        shape: Its dimensions in A and in B; null if it is missing.
        problem: Known damage in A or B, as in `inspect`; empty if none.
        change: Only with `--norms`. Null if the elements are not numbers, if shape or type differ,
            if nothing changed, or if the tensor is damaged (`problem` says how).
        difference_statistics: Only with `--histogram`: statistics of B minus A. Null if the tensor
            was not requested, did not change, is not numeric, has another shape, or cannot be read
            (`problem` says why). `zeros` is how many elements did not change.
    """

    name: str
    path: str
    difference: TensorDifference
    unknown: bool
    dtype: tuple[str | None, str | None]
    shape: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
    problem: str
    change: TensorDistance | UnsetType | None = UNSET
    difference_statistics: TensorStatistics | UnsetType | None = UNSET


class CompareReport(Report, frozen=True, kw_only=True):
    """Exit code 1 if one of the two cannot be restored, or if a tensor is damaged or cannot be
    read. Tensors are sorted by name.

    Attributes:
        before: The checkpoint or file A.
        after: The checkpoint or file B.
        problems: Why one of them cannot be restored.
        counts: Number of tensors by `difference`.
        hyperparameters: Those that differ, by name: the value in A and in B; null if it records
            none.
    """

    before: str
    after: str
    problems: tuple[str, ...]
    counts: dict[TensorDifference, int]
    tensors: tuple[ComparedTensor, ...]
    hyperparameters: dict[str, tuple[float | None, float | None]]


class TrackedCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The tensor in one checkpoint.

    Attributes:
        name: A checkpoint, the oldest first.
        step: Its step.
        branch: Its branch.
        compared_with: The checkpoint that the update refers to: its nearest listed ancestor; null
            if there is none.
        mean: Mean of the finite elements.
        deviation: Their standard deviation.
        norm: Square root of the sum of their squares.
        minimum: The smallest of them.
        maximum: The largest of them.
        not_finite: How many are NaN or infinite.
        update: Norm of the difference to `compared_with`.
        update_ratio: That norm divided by the norm in `compared_with`; null if that is zero.
        problem: Why it cannot be read; empty if it can.
    """

    name: str
    step: int | None
    branch: int
    compared_with: str | None
    mean: float | None
    deviation: float | None
    norm: float | None
    minimum: float | None
    maximum: float | None
    not_finite: int | None
    update: float | None
    update_ratio: float | None
    problem: str


class TrackReport(Report, frozen=True, kw_only=True):
    """Exit code 1 if a checkpoint does not have the tensor, or if it cannot be read.

    Attributes:
        tensor: Name of the tensor.
        path: Its path, as `inspect` shows it.
    """

    tensor: str
    path: str
    checkpoints: tuple[TrackedCheckpoint, ...]
