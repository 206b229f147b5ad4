"""What all documents of commands have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, TypeVar, overload

import msgspec

from tfckpt_trainer.rundir.storage.documents import SCHEMA

SourceT = TypeVar("SourceT")
RecordT = TypeVar("RecordT")


class LazyRecords(Sequence[RecordT], Generic[SourceT, RecordT]):
    """Records of a list that are made when they are printed: there may be very many."""

    def __init__(self, sources: Sequence[SourceT], make: Callable[[SourceT], RecordT]) -> None:
        self._sources = sources
        self._make = make

    def __len__(self) -> int:
        return len(self._sources)

    @overload
    def __getitem__(self, place: int) -> RecordT: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[RecordT]: ...

    def __getitem__(self, place: int | slice) -> RecordT | Sequence[RecordT]:
        if isinstance(place, slice):
            return LazyRecords(self._sources[place], self._make)
        return self._make(self._sources[place])


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
