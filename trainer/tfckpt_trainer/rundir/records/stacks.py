"""Records about what the threads of workers do at one moment."""

from __future__ import annotations

import msgspec

from tfckpt_trainer.rundir.storage.documents import Document


class StackRequest(Document, frozen=True, kw_only=True):
    """`stacks/request.json`: asks all workers for their stacks; the newest one counts."""

    id: str
    at: float


class ThreadStack(msgspec.Struct, frozen=True, kw_only=True):
    """What one thread does.

    Attributes:
        name: Its name.
        is_main: Whether it is the main thread, which usually trains.
        frames: `FILE:LINE in FUNCTION`, the outermost first.
        script_line: The innermost line of the script and its source; empty if none is known.
    """

    name: str
    is_main: bool
    frames: list[str]
    script_line: str = ""


class WorkerStacks(Document, frozen=True, kw_only=True):
    """`stacks/worker-N.json`: what the threads of a worker did.

    Attributes:
        request: The request that it answers.
        at: When, in seconds since the epoch.
    """

    request: str
    index: int
    at: float
    threads: list[ThreadStack]

    @property
    def script_line(self) -> str:
        """Where the script is in the main thread; empty if unknown."""
        return next((thread.script_line for thread in self.threads if thread.is_main), "")
