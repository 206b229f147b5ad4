"""Child processes tell how they ended, and two of them meet where a test wants it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from child_processes import CRASHED, KILLED, entered_elsewhere, in_child, interleaved
from tfckpt_trainer.rundir.storage.disk import Disk
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


def note(log: Path, what: str) -> None:
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"{what}\n")


@pytest.mark.parametrize(
    ("number", "dies", "order"),
    [
        (1, False, "second, 1, 2"),
        (2, False, "1, second, 2"),
        (3, False, "1, 2, second"),
        (2, True, "1, second"),
    ],
)
def test_the_second_runs_where_the_first_is_halted(
    tmp_path: Path, number: int, dies: bool, order: str
) -> None:
    log = tmp_path / "log"

    def first(disk: Disk) -> int:
        for name in ("1", "2"):
            disk.make_directory(tmp_path / name, 0o777)
            note(log, name)
        return 0

    def second() -> int:
        note(log, "second")
        return 1

    ended = interleaved(first, second, number, dies=dies)
    assert ended == ((KILLED if dies else 0, ""), (1, ""))
    assert log.read_text().splitlines() == order.split(", ")


@pytest.mark.parametrize("dies", [False, True])
def test_the_first_goes_on_while_the_second_waits_for_its_lock(tmp_path: Path, dies: bool) -> None:
    lock, log = tmp_path / "lock", tmp_path / "log"

    def first(disk: Disk) -> int:
        with locked(lock, 0, "test"):
            disk.make_directory(tmp_path / "made", 0o777)
            note(log, "first")
        return 0

    def second() -> int:
        note(log, "second begins")
        with locked(lock, 30, "test"):
            note(log, "second")
        return 0

    (code, _), ended = interleaved(first, second, 1, dies=dies)
    assert (code, ended) == (KILLED if dies else 0, (0, ""))
    between = [] if dies else ["first"]
    assert log.read_text().splitlines() == ["second begins", *between, "second"]
