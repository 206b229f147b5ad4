"""The marks that killed commands leave."""

from __future__ import annotations

from tfckpt_trainer.rundir.heartbeats.writer_marks import own_mark


def mark_of_a_killed_process() -> str:
    """Returns the mark of a process of this machine that has ended."""
    namespace, _, started = own_mark().split("-")
    return f"{namespace}-{2**22 + 1}-{started}"
