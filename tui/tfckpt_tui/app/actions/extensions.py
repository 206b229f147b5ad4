"""Actions of the dashboard that the user configures, or that other installed packages bring."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from tfckpt_trainer.errors import TfckptError, UsageError
from tfckpt_tui.app.actions.action import AppAction, Reason, Requirement
from tfckpt_tui.app.actions.table import selected_or_marked
from tfckpt_tui.formats.text import clean
from tfckpt_tui.settings.keys import check_key, names_of
from tfckpt_tui.settings.own_actions import NAME, ActionSection, ActsOn
from tfckpt_tui.settings.packages import (
    PAGES,
    brought_by_packages,
    in_words,
    load_brought,
    package_of,
)

if TYPE_CHECKING:
    from tfckpt_tui.app.protocols import Dashboard, Selection
    from tfckpt_tui.monitor.snapshot import RunSnapshot


def own_actions(sections: Mapping[str, ActionSection]) -> tuple[AppAction, ...]:
    """Returns the actions of `[actions.NAME]`, in the order of the file."""
    return tuple(_action(name, section) for name, section in sections.items())


def _action(name: str, section: ActionSection) -> AppAction:
    title = clean(section.title.rstrip(".")) or f"Run {name}"
    return AppAction(
        name=name,
        key=section.key,
        label=name,
        title=title,
        help=f"Runs `{clean(section.command)}` in the background. Your configuration defines it.",
        perform=partial(_perform, name, section),
        command="act",
        requires=() if section.on is ActsOn.RUN else (_selected,),
        applies_to_marked=section.on is not ActsOn.RUN,
        in_footer=bool(section.key),
    )


def _selected(run: RunSnapshot, selection: Selection) -> Reason:
    if not selection.all:
        return selected_or_marked(run, selection)
    broken = next((one for one in selection.all if not one.restorable), None)
    if broken is None:
        return ""
    return f"{clean(broken.name)} is {broken.state.value}. Only restorable checkpoints can be used."


def _perform(name: str, section: ActionSection, dashboard: Dashboard) -> None:
    checkpoints = dashboard.selection.all if section.on is not ActsOn.RUN else ()
    each = [(one,) for one in checkpoints] if section.on is ActsOn.CHECKPOINT else [checkpoints]
    for targets in each:
        dashboard.run_app.own_actions.add(name, section, targets)
    key = dashboard.run_app.key_of("own-actions")
    dashboard.tell(f"{name} runs in the background. Press {key} to see its output.")


class PackageActions(msgspec.Struct, frozen=True):
    """What other packages bring.

    Attributes:
        actions: Their actions, by the names of their entry points.
        problems: What is wrong with others, as sentences.
    """

    actions: tuple[AppAction, ...] = ()
    problems: tuple[str, ...] = ()


def actions_of_packages(
    others: Iterable[AppAction], configured: Mapping[str, str]
) -> PackageActions:
    """Imports the actions that other packages bring.

    One has the key that the user configured, or else its own. If that is taken, the palette alone
    has it.

    Args:
        others: All other actions.
        configured: The section `[keys]` of the configuration, which was checked.
    """
    others = tuple(others)
    names = {action.name for action in others}
    keys = [configured.get(action.name, action.key) for action in others]
    taken = {key for each in (*keys, *configured.values()) for key in names_of(each)}
    actions: list[AppAction] = []
    problems: list[str] = []
    for entry in brought_by_packages(PAGES).values():
        named = f"{entry.name} of {package_of(entry)}"
        if entry.name in names or not NAME.fullmatch(entry.name):
            why = "an action has that name" if entry.name in names else "that is no name"
            problems.append(f"{named} is left out: {why}.")
            continue
        try:
            action, problem = _with_key(
                load_brought(entry, AppAction), entry.name, configured, taken
            )
            action = _guarded(action, named)
        except TfckptError as error:
            problems.append(str(error))
            continue
        except Exception as error:
            # An attribute of another type.
            problems.append(f"{named} cannot be used: {in_words(error)}.")
            continue
        if problem:
            advice = f'Give it one in [keys] of the configuration: `{action.name} = "f8"`.'
            problems.append(f"{named} has no key: {problem} {advice}")
        taken |= set(names_of(action.key))
        actions.append(action)
    return PackageActions(tuple(actions), tuple(problems))


def _with_key(
    action: AppAction, name: str, configured: Mapping[str, str], taken: Container[str]
) -> tuple[AppAction, str]:
    """Returns an action with its name and keys, and why it has none as a sentence."""
    if name in configured:
        return replace(action, name=name, key=configured[name]), ""
    keys = list(names_of(action.key))
    problem = _why_not(name, keys, taken)
    return replace(action, name=name, key="" if problem else ",".join(keys)), problem


def _guarded(action: AppAction, named: str) -> AppAction:
    """Returns an action whose functions may raise anything: it is told, and the app goes on."""

    def require(requirement: Requirement) -> Requirement:
        def why_not(run: RunSnapshot, selection: Selection) -> Reason:
            try:
                return requirement(run, selection)
            except Exception as error:
                return f"{named} failed: {in_words(error)}."

        return why_not

    def perform(dashboard: Dashboard) -> None:
        try:
            action.perform(dashboard)
        except Exception as error:
            dashboard.tell(f"{named} failed: {in_words(error)}.")

    return replace(
        action,
        perform=perform,
        requires=tuple(require(requirement) for requirement in action.requires),
        needed_when=None,
        other_label=None,
    )


def _why_not(name: str, keys: Iterable[str], taken: Container[str]) -> str:
    """Returns why an action cannot have its keys, as a sentence; empty if it can."""
    for key in keys:
        if key in taken:
            return f"{key} is taken."
        try:
            check_key(name, key)
        except UsageError as error:
            return str(error)
    return ""
