"""What all documents of commands have in common."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from tfckpt_trainer.rundir.storage.documents import SCHEMA


class Report(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag=SCHEMA):
    """A document that a command prints; its first field is `schema`.

    Attributes:
        variant: What the command line has after the name of the command, if the command prints
            several documents.
    """

    variant: ClassVar[str] = ""


class Error(msgspec.Struct, frozen=True):
    """Why a command failed.

    Attributes:
        code: The exit code: 1 problem, 2 usage, 3 no trainer, 4 refused, 130 interrupted, 143
            ended by SIGTERM.
        name: The same as a word: `problem`, `usage`, `no_trainer`, `refused`, `interrupted`,
            `preempted`.
        message: What happened, and what to do.
    """

    code: int
    name: str
    message: str


class ErrorReport(Report, frozen=True, kw_only=True):
    """A command that fails prints this document instead, and the same message on standard error."""

    error: Error
