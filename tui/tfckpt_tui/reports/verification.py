"""What `verify` and `bisect` print."""

from __future__ import annotations

import msgspec

from tfckpt_trainer.catalog.verification.bisect import Probe
from tfckpt_tui.reports.base import Report


class VerifyFinding(msgspec.Struct, frozen=True):
    """Damage that was found.

    Attributes:
        severity: `error` or `warning`. A warning is about damage that no restore reads.
        kind: Of an index: `index-missing`, `index-empty`, `index`, `index-unused`. Of a data file:
            `shard-missing`, `shard-short`, `shard-long`, `shard-extra`, `shard-not-plain`. Of a
            tensor: `tensor-cut`, `overlap`, `checksum`, `size`, `dtype`, `name`, `slice`,
            `slice-unused`. Others: `object-graph`, `record`, `record-missing`, `record-short`,
            `record-unusable`, `unreadable`, `unsupported`, and `head` of the run.
        file: In which file.
        tensor: Of which tensor.
        message: One sentence.
    """

    severity: str
    kind: str
    file: str
    tensor: str | None
    message: str


class NotFiniteTensor(msgspec.Struct, frozen=True):
    """A tensor with values that are not finite.

    Attributes:
        tensor: A tensor with values that are not finite; only with `--finite`.
        nan: Number of NaN values.
        infinite: How many are infinite.
        elements: How many it has in all.
        first: Index of the first, a number for each dimension.
    """

    tensor: str
    nan: int
    infinite: int
    elements: int
    first: tuple[int, ...]


class VerifiedCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that was verified, now or before.

    Attributes:
        name: A checkpoint that was verified, now or before.
        ok: Whether there is no error, and `--finite` found nothing.
        remembered: Whether the result is cached: no file changed since.
        verified_at: When it was read.
        seconds: How long that took.
        bytes: How much was read.
        tensors: Number of tensors checked, without the object graph.
    """

    name: str
    ok: bool
    remembered: bool
    verified_at: float
    seconds: float
    bytes: int
    tensors: int
    findings: tuple[VerifyFinding, ...]
    not_finite: tuple[NotFiniteTensor, ...]


class VerifiedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of another format that was read.

    Attributes:
        name: A [file of another format](checkpoints.md#files-of-other-formats) that was read.
        format: As `other_files[].format` of `ls`.
        bytes: Its size.
        checked: Which checksums were compared; empty if it has none.
        problem: Why it is damaged; empty if all could be read.
        not_finite: Names of tensors with NaN or infinite values.
    """

    name: str
    format: str
    bytes: int
    checked: str
    problem: str
    not_finite: tuple[str, ...]


class Skipped(msgspec.Struct, frozen=True):
    """A checkpoint or file that was not read.

    Attributes:
        name: A checkpoint or file that was not read.
        reason: Why: it is being written, …
    """

    name: str
    reason: str


class VerifyReport(Report, frozen=True, kw_only=True):
    """Exit code 1 if a checkpoint is damaged, or if `--finite` found something; not for warnings.

    Attributes:
        findings: Warnings about the run itself, only if no CKPT was given: `head.json` or its copy
            is damaged. `message` says how a start continues.
    """

    checkpoints: tuple[VerifiedCheckpoint, ...]
    files: tuple[VerifiedFile, ...]
    skipped: tuple[Skipped, ...]
    findings: tuple[VerifyFinding, ...]


class BisectReport(Report, frozen=True, kw_only=True):
    """Exit code 1 if the check fails for a checkpoint, or if none could be checked.

    Attributes:
        first_bad: The first checkpoint that fails the check; null if the last one that could be
            checked is good, or if none could be checked.
        last_good: The last good checkpoint before it; null if there is none.
        undecided: Skipped checkpoints between the two, or after the last good one; any of them can
            be the first bad one.
    """

    first_bad: str | None
    last_good: str | None
    undecided: tuple[str, ...]
    checks: tuple[Probe, ...]
