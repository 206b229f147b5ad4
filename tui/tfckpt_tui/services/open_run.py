"""Opens a run directory, or explains why a directory is not one."""

from __future__ import annotations

import os
from pathlib import Path

from tfckpt_trainer.catalog.scan.checkpoint_files import scan_files
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.object_storage import refuse_url
from tfckpt_tui.formats import units


def open_run(directory: str | Path) -> RunDirectory:
    """Returns the run in `directory`, which may be any directory of TensorFlow checkpoints.

    Raises:
        UsageError: It does not exist, cannot be read, or has no checkpoints.
    """
    refuse_url(directory)
    # Resolved here, so that no later move goes through a symbolic link.
    root = Path(os.path.realpath(Path(directory).expanduser()))
    run = RunDirectory(root)
    try:
        # Not all names: with ten thousand checkpoints they take a while.
        with os.scandir(root) as entries:
            next(entries, None)
        if run.is_ours or run.state_file.exists() or scan_files(root):
            return run
        names = os.listdir(root)
    except FileNotFoundError:
        raise UsageError(
            f"{root} does not exist; check the path, or start a run there with "
            f"`tfckpt-tui launch {root} -- COMMAND`."
        ) from None
    except NotADirectoryError:
        raise UsageError(
            f"{root} is not a directory; name the directory of the checkpoints. That may be "
            f"{root.parent}."
        ) from None
    except OSError as error:
        raise UsageError(
            f"{root} cannot be read ({error.strerror}); ask its owner, or run as another user."
        ) from error
    if not names:
        raise UsageError(
            f"{root} is empty; start a run there with `tfckpt-tui launch {root} -- COMMAND`."
        )
    others = units.count(len(names), "other entry", "other entries")
    raise UsageError(
        f"{root} has no checkpoints; it holds {others}, the first is {sorted(names)[0]!r}. "
        "Name a directory with checkpoints (NAME.index, NAME.data-…)."
    )
