"""Changes settings in the configuration file; comments and all other content stay."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.storage.files import write_atomic
from tfckpt_trainer.user_directories import NO_HOME
from tfckpt_tui.settings.config import config_path, read_config


def write_settings(
    section: str,
    values: Mapping[str, object],
    default_keys: Mapping[str, str],
    path: Path | None = None,
) -> Path:
    """Sets values in `[section]`; None removes a key, which restores its default.

    Args:
        section: The name of the section.
        values: By name.
        default_keys: The key of each action by its name, to check the file.
        path: The file; by default the one at the XDG place.

    Returns:
        The file.

    Raises:
        UsageError: The file is invalid, and stays unchanged; or there is no home directory.
        OSError: It cannot be written.
    """
    # Imported late: only a change needs it.
    import tomlkit

    place = path or config_path()
    if place is None:
        raise UsageError(NO_HOME)
    read_config(default_keys, place if place.exists() else None)
    before = place.read_text(encoding="utf-8") if place.exists() else ""
    document = tomlkit.parse(before)
    if section not in document:
        document[section] = tomlkit.table()
    table = document[section]
    if not isinstance(table, dict):
        raise UsageError(f"{place}: [{section}] is not a table; edit the file to make it one.")
    for name, value in values.items():
        if value is None:
            table.pop(name, None)
        else:
            table[name] = value
    place.parent.mkdir(parents=True, exist_ok=True)
    # If the file is a symbolic link, as with dotfiles, it stays one.
    write_atomic(place.resolve(), tomlkit.dumps(document).encode())
    return place
