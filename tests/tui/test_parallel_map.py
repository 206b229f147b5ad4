"""Several processes map a function over many items; nothing is lost with one of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from tfckpt_tui.services.processes import parallel_map as module
from tfckpt_tui.services.processes.parallel_map import parallel_map
from waiting import wait_until

PARENT = """
import os, signal
from tfckpt_tui.services.processes import parallel_map as module
module.usable_cores = lambda: 3
results = module.parallel_map(lambda item: (os.getpid(), bytes(1 << 13)), range(10_000))
print(*{next(results)[0] for _ in range(96)}, flush=True)
signal.pause()
"""


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "usable_cores", lambda: 3)
    monkeypatch.setattr(module, "_BLOCK", 4)


def where(item: int) -> tuple[int, int]:
    return item, os.getpid()


@pytest.mark.parametrize("count", [0, 1, 4, 5, 100])
def test_results_are_in_the_order_of_the_items(count: int) -> None:
    found = list(parallel_map(where, range(count)))
    assert [item for item, _ in found] == list(range(count))
    assert len({process for _, process in found}) == min(3, -(-count // 4))


def test_one_core_needs_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "usable_cores", lambda: 1)
    assert {process for _, process in parallel_map(where, range(50))} == {os.getpid()}


def test_an_error_is_raised_after_the_results_before_it(capfd: pytest.CaptureFixture[str]) -> None:
    def half(item: int) -> float:
        return 1 / (item - 30)

    found: list[float] = []
    with pytest.raises(ZeroDivisionError):
        found.extend(parallel_map(half, range(50)))
    results: Iterator[float] = parallel_map(half, range(50))
    assert [next(results) for _ in range(30)] == [half(item) for item in range(30)]
    assert capfd.readouterr().err == ""


def test_what_a_killed_process_leaves_undone_is_done_here() -> None:
    here = os.getpid()

    def act(item: int) -> int:
        if item == 17 and os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return item * item

    assert list(parallel_map(act, range(50))) == [item * item for item in range(50)]


def test_no_process_is_left_when_the_results_are_not_wanted_any_more() -> None:
    # More than a pipe holds, so that the process cannot have ended.
    results = parallel_map(where, range(200_000))
    _, process = next(results)
    assert psutil.pid_exists(process)
    results.close()
    wait_until(lambda: not psutil.pid_exists(process), 10, "the end of the process")


def test_no_process_outlives_a_killed_one() -> None:
    """A process whose parent was killed ends at the first result that nobody reads."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        processes = [int(word) for word in parent.stdout.readline().split()]
        parent.kill()
    try:
        wait_until(lambda: not any(map(psutil.pid_exists, processes)), 10, "their end")
    finally:
        for process in filter(psutil.pid_exists, processes):
            os.kill(process, signal.SIGKILL)
