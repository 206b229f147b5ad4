"""Actions of the dashboard that the user configures."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from tfckpt_tui.app.actions.action import AppAction, Reason
from tfckpt_tui.app.actions.table import selected_or_marked
from tfckpt_tui.formats.text import clean
from tfckpt_tui.settings.own_actions import ActionSection, ActsOn

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
