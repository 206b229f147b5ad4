"""Where a run is: the same on all workers."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Position:
    """Where the run is.

    Attributes:
        step: Steps done.
        branch: On which it is saved.
        parent: The checkpoint that was saved or restored last.
        sequence: Saves and restores done in the life of the run.
        best: The best value so far of each metric by whose improvement is saved.
    """

    step: int = 0
    branch: int = 0
    parent: str | None = None
    sequence: int = 0
    best: dict[str, float] = field(default_factory=dict)
