"""Tells the variables of a SavedModel from the checkpoints of a run.

`tf.saved_model.save` writes them as a bundle named `variables`, in a directory of that name. They
have no state file, and no training continues from them.
"""

from __future__ import annotations

import os
from pathlib import Path

SAVED_MODEL_FILES = frozenset({"saved_model.pb", "saved_model.pbtxt"})
"""Names of the file with the graph of a SavedModel."""

VARIABLES = "variables"
"""Name of the bundle with its variables, and of the directory that it is in."""

NEEDED = "a SavedModel needs it"
"""Why its variables are not pruned."""


def is_in_saved_model(directory: Path) -> bool:
    """Whether a directory is the one for the variables of a SavedModel."""
    place = Path(os.path.realpath(directory))
    return (
        place.name == VARIABLES
        and (place / f"{VARIABLES}.index").exists()
        and any((place.parent / name).exists() for name in SAVED_MODEL_FILES)
    )
