"""Counts what Python executes, to tell how work grows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class ExecutedLines:
    """Counts the lines of Python that run in calls which begin inside; each loop pass is one."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> ExecutedLines:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, _frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        self.count += event == "line"
        return self._trace
