"""Variables of the environment that TensorFlow reads while it is imported.

A script that chooses Keras 2 sets one before it imports TensorFlow. A worker that was forked with
TensorFlow imported has to begin anew then.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

READ_AT_IMPORT = frozenset(
    {"KERAS_BACKEND", "KERAS_HOME", "TF_ENABLE_ONEDNN_OPTS", "TF_USE_LEGACY_KERAS"}
)
"""Those that have no effect once TensorFlow is imported."""

_imported: dict[str, str | None] = {}
"""Their values at that import, while changes are watched."""


def watch_changes(on_change: Callable[[], object]) -> None:
    """Calls a function before this process changes one of `READ_AT_IMPORT`.

    Args:
        on_change: The function.
    """
    _imported.update((name, os.environ.get(name)) for name in READ_AT_IMPORT)
    put, unset = os.putenv, os.unsetenv

    def compare(name: Any, value: str | None) -> None:
        known = os.fsdecode(name)
        if known in _imported and _imported[known] != value:
            on_change()

    # What `os.environ` calls for each change.
    def putenv(name: Any, value: Any) -> None:
        compare(name, os.fsdecode(value))
        put(name, value)

    def unsetenv(name: Any) -> None:
        compare(name, None)
        unset(name)

    os.putenv, os.unsetenv = putenv, unsetenv


def end_watch() -> None:
    """Ends the watch: the script uses TensorFlow, and what it changes now is for others."""
    _imported.clear()
