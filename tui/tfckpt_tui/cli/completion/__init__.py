"""What the shell completes: names of checkpoints and tensors, and run directories.

The script that a shell loads is printed by `cli.config`.
"""

from __future__ import annotations

import os

VARIABLE = "_TFCKPT_TUI_COMPLETE"
"""The environment variable by which a shell asks."""


def is_asked_for() -> bool:
    """Whether a shell asks."""
    return VARIABLE in os.environ
