"""Holds files open as a trainer does that nobody instrumented; says so, and waits to be ended.

Its arguments are those of such a script. It opens the paths in the variable HELD for writing, and
closes them at SIGUSR1.
"""

from __future__ import annotations

import os
import signal

HELD = [
    os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for path in filter(None, os.environ.get("HELD", "").split(os.pathsep))
]


def close(number: int, frame: object) -> None:
    """Closes the files."""
    while HELD:
        os.close(HELD.pop())
    print("closed", flush=True)


signal.signal(signal.SIGUSR1, close)
print("trains", flush=True)
while True:
    signal.pause()
