"""What other installed packages bring by their entry points: commands, and actions of the app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from tfckpt_trainer.errors import TfckptError, describe_error

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

COMMANDS: Final = "tfckpt_tui.commands"
"""Entry points whose objects are commands of click."""

PAGES: Final = "tfckpt_tui.pages"
"""Entry points whose objects are actions of the app, each of which opens a page."""

_BroughtT = TypeVar("_BroughtT")


def brought_by_packages(group: str) -> dict[str, EntryPoint]:
    """Returns the entry points of a group by name, in the order of the names."""
    # Imported here: it takes longer than a command that needs nothing of other packages.
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in sorted(entry_points(group=group), key=_name)}


def load_brought(entry: EntryPoint, kind: type[_BroughtT]) -> _BroughtT:
    """Imports what an entry point names.

    Raises:
        TfckptError: It cannot be imported, or is of another class.
    """
    package = entry.dist.name if entry.dist is not None else "another package"
    advice = f"Install another release of {package}, or uninstall it: `pip uninstall {package}`."
    try:
        found = entry.load()
    except Exception as error:
        # Code of others may raise anything when it is imported.
        why = f"{type(error).__name__}: {describe_error(error)}"
        raise TfckptError(
            f"{entry.name} of {package} cannot be imported: {why}. {advice}"
        ) from error
    if not isinstance(found, kind):
        what = f"{type(found).__name__}; expected a {kind.__name__}"
        raise TfckptError(f"{entry.name} of {package} is a {what}. {advice}")
    return found


def _name(entry: EntryPoint) -> str:
    return entry.name
