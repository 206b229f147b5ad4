"""What installed packages bring by their entry points: commands, and actions of the app.

The tools of this package, which no other part of it needs, are found in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar

from tfckpt_trainer.errors import TfckptError, describe_error

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

COMMANDS: Final = "tfckpt_tui.commands"
"""Entry points whose objects are commands of click."""

PAGES: Final = "tfckpt_tui.pages"
"""Entry points whose objects are actions of the app, each of which opens a page."""

_OWN = "tfckpt-tui"
"""The name of this package."""

_BroughtT = TypeVar("_BroughtT")


@cache
def own_tools() -> Mapping[str, EntryPoint]:
    """Returns the commands that this package brings as any other does, by name."""
    # Imported here: most commands need nothing of it.
    from importlib.metadata import PackageNotFoundError, distribution

    with suppress(PackageNotFoundError):
        entries = distribution(_OWN).entry_points.select(group=COMMANDS)
        return {entry.name: entry for entry in sorted(entries)}
    return {}


@cache
def brought_by_packages(group: str) -> Mapping[str, EntryPoint]:
    """Returns the entry points of a group by name, in the order of the names.

    Of two with one name, it is that of this package, otherwise the one that Python would import.
    The metadata of a package that cannot be read is passed over: it may be any package of this
    machine.
    """
    # Imported here: it takes longer than a command that needs nothing of other packages.
    from importlib.metadata import distributions

    found = dict(own_tools()) if group == COMMANDS else {}
    for distribution in distributions():
        entries: list[EntryPoint] = []
        # A file of others: no UTF-8, a line without `=`, or anything else.
        with suppress(Exception):
            entries = [one for one in distribution.entry_points if one.group == group]
        for entry in entries:
            found.setdefault(entry.name, entry)
    return dict(sorted(found.items()))


def package_of(entry: EntryPoint) -> str:
    """Returns the name of the package that brings an entry point."""
    assert entry.dist is not None
    return entry.dist.name


def in_words(error: BaseException) -> str:
    """Returns the type and the message of an error in code of a package, without a period."""
    what = describe_error(error) if isinstance(error, Exception) else str(error)
    return f"{type(error).__name__}: {what.rstrip('.')}"


def load_brought(entry: EntryPoint, kind: type[_BroughtT]) -> _BroughtT:
    """Imports what an entry point names.

    Raises:
        TfckptError: It cannot be imported, or is of another class.
    """
    package = package_of(entry)
    advice = f"Install another release of {package}, or uninstall it: `pip uninstall {package}`."
    try:
        found = entry.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # Code of others may raise anything when it is imported.
        why = f"cannot be imported: {in_words(error)}"
        raise TfckptError(f"{entry.name} of {package} {why}. {advice}") from error
    if not isinstance(found, kind):
        what = f"{type(found).__name__}; expected {kind.__name__}"
        raise TfckptError(f"{entry.name} of {package} is {what}. {advice}")
    return found
