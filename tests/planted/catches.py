"""Who catches a planted bug: the quick tests, the others that each change must pass, or nobody."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from .bugs import Bug, StaleBugError
from .checkout import BrokenError, Copy, last_words

QUICK = ("-m", "quick")
OTHERS = ("-m", "not quick and not weekly")

_TRIES = 3


class CaughtBy(StrEnum):
    """Who catches a bug. `BROKEN` is no bug that tests have to find: all of them fail."""

    QUICK = "quick"
    RUN = "run"
    NOBODY = "nobody"
    BROKEN = "broken"


@dataclass(frozen=True)
class Catch:
    """Who caught a bug.

    Attributes:
        name: The bug.
        by: Who caught it.
        test: The first test that failed; for a broken one, what was said.
        seconds: How long it took.
    """

    name: str
    by: CaughtBy
    test: str = ""
    seconds: float = 0.0


def catch(copy: Copy, bug: Bug, *, likely_only: bool) -> Catch:
    """Plants a bug, and runs tests until one notices it: likely ones, quick ones, all."""
    began = time.monotonic()
    by, test = CaughtBy.NOBODY, ""
    try:
        with copy.with_bug(bug):
            copy.check()
            by, test = _first_of(copy, bug.tests, likely_only=likely_only)
    except (BrokenError, StaleBugError) as error:
        by = CaughtBy.BROKEN
        test = str(error) if isinstance(error, StaleBugError) else "\n".join(last_words(error))
    return Catch(bug.name, by, test, time.monotonic() - began)


def _first_of(copy: Copy, likely: Sequence[str], *, likely_only: bool) -> tuple[CaughtBy, str]:
    # One process, in which tests run in the order of their files.
    alone = ("-n0", *likely)
    tries = [(CaughtBy.QUICK, (*QUICK, *alone)), (CaughtBy.RUN, (*OTHERS, *alone))]
    if not likely_only:
        tries += [(CaughtBy.QUICK, QUICK), (CaughtBy.RUN, OTHERS)]
    for by, words in tries:
        test = _first_that_fails_again(copy, words)
        if test is not None:
            return by, test
    return CaughtBy.NOBODY, ""


def _first_that_fails_again(copy: Copy, words: Sequence[str]) -> str | None:
    """Returns the first test that fails; one that passes when it is repeated failed by chance."""
    for _ in range(_TRIES):
        test = copy.first_failure(*words)
        if test is None or copy.first_failure(test) is not None:
            return test
    return None


def failing_without_bug(copy: Copy, catches: Sequence[Catch]) -> set[str]:
    """Returns which of the tests that noticed a bug fail without one too."""
    tests = sorted({one.test for one in catches if one.by in {CaughtBy.QUICK, CaughtBy.RUN}})
    failing: set[str] = set()
    while passing := [test for test in tests if test not in failing]:
        test = copy.first_failure(*passing)
        if test is None:
            break
        failing.add(test)
    return failing
