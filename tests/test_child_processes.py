"""Child processes tell how they ended."""

from __future__ import annotations

import os
from pathlib import Path

from child_processes import CRASHED, entered_elsewhere, in_child
from tfckpt_trainer.rundir.storage.locks import locked, take_lock


def test_a_child_tells_what_it_printed_and_how_it_ended() -> None:
    def action() -> int:
        print("héllo")
        return 3

    assert in_child(action) == (3, "héllo\n")
    assert in_child(lambda: os._exit(9)) == (9, "")
    code, told = in_child(lambda: 1 // 0)
    assert code == CRASHED
    assert told.endswith("ZeroDivisionError: integer division or modulo by zero\n")


def test_another_process_is_in_a_context_meanwhile(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with entered_elsewhere(locked(lock, 0, "test")):
        assert take_lock(lock) is None
    free = take_lock(lock)
    assert free is not None
    os.close(free)
