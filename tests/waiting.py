"""Waiting and trying with a limit; tests never sleep for a fixed time, nor try without an end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

Result = TypeVar("Result")

LEAST_SECONDS = 60.0
"""The shortest limit on an idle machine."""
MOST_SECONDS = 480.0
"""The longest limit on a busy one: a test that waits says for what before its own limit ends it."""

SHORTEST_PAUSE = 0.02
PAUSE_SHARE = 0.05
"""A pause, as a part of the time waited: who looks too often takes the time that others need."""
LONGEST_PAUSE = 0.1
LOOK_SHARE = 0.1
"""The longest part of the time that looking takes: some conditions start a process for a look."""

MOST_ATTEMPTS = 200
"""No act that a test repeats until it ends undisturbed makes as many changes, by far."""


def wait_until(condition: Callable[[], Result], timeout: float, what: str) -> Result:
    """Returns the first true value of `condition`; fails when it `took_too_long`."""
    began = time.monotonic()
    while True:
        looks = time.monotonic()
        result = condition()
        if result:
            return result
        now = time.monotonic()
        waited = now - began
        if took_too_long(waited, timeout):
            raise AssertionError(f"{what}: not within {waited:.0f} s; last seen: {result!r}")
        time.sleep(max(pause_after(waited), (now - looks) * (1 / LOOK_SHARE - 1)))


def took_too_long(waited: float, timeout: float) -> bool:
    """Whether a wait is over after some seconds.

    A machine with five times as many running processes as cores takes five times as long. Nothing
    takes longer than `MOST_SECONDS`.
    """
    busy = max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))
    return waited > min(max(timeout, LEAST_SECONDS) * busy, MOST_SECONDS)


def attempts(what: str, most: int = MOST_ATTEMPTS) -> Iterator[int]:
    """Yields the numbers from 1; fails after the last, if the loop has not ended with `break`."""
    yield from range(1, most + 1)
    raise AssertionError(f"{what}: not within {most} attempts")


def pause_after(waited: float) -> float:
    """Returns how many seconds to wait before the next look, after some seconds of waiting."""
    return min(max(SHORTEST_PAUSE, PAUSE_SHARE * waited), LONGEST_PAUSE)


class PassingTime:
    """A clock, and a `time`, that only sleeping and tests make pass."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Returns the time."""
        return self.now

    monotonic = __call__

    def sleep(self, seconds: float) -> None:
        """Lets seconds pass at once."""
        self.now += seconds
