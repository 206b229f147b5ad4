"""Finds the lines of a script that created an operation."""

from __future__ import annotations

import functools
import sysconfig
from pathlib import Path
from typing import Any

from tfckpt_trainer.scripts.script_errors import PACKAGE_FOLDERS

_OURS = f"{Path(__file__).parents[2]}/"
_HERE = f"{Path(__file__).parent}/"
_LIBRARIES = (
    "<frozen",
    _OURS,
    *(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")),
)


@functools.cache
def is_of_script(filename: str) -> bool:
    """Whether a source file belongs to the script and not to a library."""
    if filename.startswith(f"{_OURS}examples/"):
        return True
    is_installed = any(folder in filename for folder in PACKAGE_FOLDERS)
    return not is_installed and not filename.startswith(_LIBRARIES)


def place_of(operation: Any) -> str:
    """Returns the line of the script that created an operation, such as `train.py:12`.

    Returns:
        The innermost line; empty if none is known.
    """
    frames = operation.traceback or ()
    if any(str(frame.filename).startswith(_HERE) for frame in frames):
        # TensorFlow made its graph while these modules looked at it, from a function without one.
        return ""
    lines = [frame for frame in frames if is_of_script(str(frame.filename))]
    return f"{Path(lines[-1].filename).name}:{lines[-1].lineno}" if lines else ""
