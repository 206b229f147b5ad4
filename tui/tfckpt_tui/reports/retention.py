"""What `prune`, `undo`, `trash`, `pin` and `unpin` print."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from tfckpt_tui.reports.base import Report


class PruneDecision(msgspec.Struct, frozen=True):
    """What a prune does with one checkpoint or file, and why.

    Attributes:
        name: The checkpoint or the file.
        keep: Whether it stays.
        reason: Why.
        bytes: Its size.
    """

    name: str
    keep: bool
    reason: str
    bytes: int


class PrunePlan(msgspec.Struct, frozen=True):
    """What a prune does.

    Attributes:
        freed_bytes: Bytes that are free once the trash is emptied.
    """

    freed_bytes: int
    decisions: tuple[PruneDecision, ...]


class EmptiedTrash(msgspec.Struct, frozen=True):
    """What was deleted for good.

    Attributes:
        freed_bytes: What was deleted for good: with `--delete`, and by `trash_hours` of the
            configuration file.
        names: The checkpoints.
    """

    freed_bytes: int = 0
    names: tuple[str, ...] = ()


class PruneReport(Report, frozen=True, kw_only=True):
    """With `--dry-run`, and if there is nothing to prune, `trash` and `command` are null.

    Attributes:
        trash: Id for `undo --trash`.
        command: With `--no-wait`: the id of the command that the trainer will carry out.
        warnings: Problems that did not prevent the action.
        problems: What could not be deleted; exit code 1.
    """

    plan: PrunePlan
    trash: str | None
    command: str | None
    emptied: EmptiedTrash
    warnings: tuple[str, ...]
    problems: tuple[str, ...]


class UndoReport(Report, frozen=True, kw_only=True):
    """The checkpoints that came back.

    Attributes:
        trash: Which prune was undone.
        names: The checkpoints that came back.
        warnings: Problems that did not prevent the action.
    """

    trash: str | None
    names: tuple[str, ...]
    warnings: tuple[str, ...]


class TrashedPrune(msgspec.Struct, frozen=True):
    """One prune in the trash.

    Attributes:
        id: For `undo --trash`.
        at: When it was pruned.
        by: By whom.
        names: The checkpoints.
        bytes: Their size.
    """

    id: str
    at: float
    by: str
    names: tuple[str, ...]
    bytes: int


class TrashReport(Report, frozen=True, kw_only=True):
    """Newest first.

    Attributes:
        problems: What in the trash cannot be read; exit code 1.
    """

    trash: tuple[TrashedPrune, ...]
    problems: tuple[str, ...]


class EmptiedReport(Report, frozen=True, kw_only=True):
    """What was deleted for good.

    Attributes:
        freed_bytes: What was deleted for good.
        names: The checkpoints.
        warnings: Pinned checkpoints that stay, and problems that did not prevent the action.
        problems: What could not be read or deleted; exit code 1.
    """

    variant: ClassVar[str] = "empty"

    freed_bytes: int
    names: tuple[str, ...]
    warnings: tuple[str, ...]
    problems: tuple[str, ...]


class PinReport(Report, frozen=True, kw_only=True):
    """A checkpoint that was pinned or unpinned.

    Attributes:
        name: The checkpoint.
        pinned: Whether it is pinned now.
        warnings: Problems that did not prevent the action.
    """

    name: str
    pinned: bool
    warnings: tuple[str, ...]
