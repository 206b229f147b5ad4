"""Actions of the dashboard that other installed packages bring."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from tfckpt_trainer.errors import TfckptError
from tfckpt_tui.app.actions.action import AppAction
from tfckpt_tui.settings.keys import RESERVED_KEYS
from tfckpt_tui.settings.packages import PAGES, brought_by_packages, load_brought


class PackageActions(msgspec.Struct, frozen=True):
    """What other packages bring.

    Attributes:
        actions: Their actions, by the names of their entry points.
        problems: What is wrong with others, as sentences.
    """

    actions: tuple[AppAction, ...] = ()
    problems: tuple[str, ...] = ()


def actions_of_packages(names: Iterable[str], keys: Iterable[str]) -> PackageActions:
    """Imports the actions that other packages bring.

    One whose key is taken is in the palette alone.

    Args:
        names: The names of all other actions.
        keys: Their keys.
    """
    taken_names, taken_keys = set(names), {*RESERVED_KEYS, *keys}
    actions: list[AppAction] = []
    problems: list[str] = []
    for entry in brought_by_packages(PAGES).values():
        try:
            action = replace(load_brought(entry, AppAction), name=entry.name)
        except TfckptError as error:
            problems.append(str(error))
            continue
        if action.name in taken_names:
            problems.append(
                f"{action.name} of another package is left out: an action has that name."
            )
            continue
        if action.key in taken_keys:
            problems.append(
                f"The key {action.key} of {action.name} is taken. The palette has {action.name}."
            )
            action = replace(action, key="")
        taken_names.add(action.name)
        taken_keys.add(action.key)
        actions.append(action)
    return PackageActions(tuple(actions), tuple(problems))
