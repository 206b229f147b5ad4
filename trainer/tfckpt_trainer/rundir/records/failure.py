"""Records about what a worker left when it failed."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tfckpt_trainer.scripts.script_errors import ScriptError


class OutOfMemory(StrEnum):
    """What shows that the kernel killed a process because memory ran out.

    `counted` is a kill that the kernel counted in the control group of the supervisor, `on host`
    one that it counted on the host of the worker: of this worker or of another process. `logged` is
    one that Slurm printed.
    """

    COUNTED = "counted"
    LOGGED = "logged"
    ON_HOST = "on host"


class ScriptFault(msgspec.Struct, frozen=True, kw_only=True):
    """The error that ended a script.

    Attributes:
        place: `FILE:LINE`, the innermost line of the script; empty if none is known.
        function: Its function.
        source: Its text.
        error: Type and message of the error.
    """

    place: str = ""
    function: str = ""
    source: str = ""
    error: str

    @classmethod
    def of(cls, error: ScriptError) -> ScriptFault:
        """Returns the record of an error."""
        line = error.line
        if line is None:
            return cls(error=error.message)
        return cls(place=str(line), function=line.function, source=line.text, error=error.message)


class WorkerLoss(msgspec.Struct, frozen=True, kw_only=True):
    """The details of an event `worker lost` of the supervisor.

    Attributes:
        worker: Its index; None if no worker is known.
        exit_code: Its exit status, negative for a signal; None if it did not end by itself.
        signal: The name of that signal.
        log: The last lines that it printed.
        fault: The error of the script, if it ended by one.
        step: The step in its last heartbeat; None without one.
        memory_bytes: Its resident memory in that heartbeat.
        memory_limit_bytes: The memory that it could use; None on another host.
        disk_free_bytes: Free bytes of the file system of the run then.
        out_of_memory: Whether the kernel killed a process for lack of memory then; None if nothing
            shows it.
        verdict: Why the workers do not start again, as a sentence; empty if they do.
    """

    worker: int | None = None
    exit_code: int | None = None
    signal: str | None = None
    log: list[str] = []
    fault: ScriptFault | None = None
    step: int | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    disk_free_bytes: int | None = None
    out_of_memory: OutOfMemory | None = None
    verdict: str = ""
