"""Short names of runs in a list."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tfckpt_tui.formats.text import clean


def short_names(roots: Sequence[Path]) -> dict[Path, str]:
    """Returns the paths of runs below the directory that holds all of them, safe to show."""
    above = os.path.commonpath([root.parent for root in roots]) if roots else ""
    return {root: clean(os.path.relpath(root, above)) for root in roots}
