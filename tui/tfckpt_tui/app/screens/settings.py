"""The settings of the app: the arrows change them, and the configuration file keeps them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace
from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tfckpt_trainer.machine.user_directories import NO_HOME
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_tui.app.protocols import ActionInfo
from tfckpt_tui.app.screens.page import Page
from tfckpt_tui.app.widgets.base.columns import GAP, Column, Layout, choose
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.app.widgets.base.list_pane import ListPane, TextPane
from tfckpt_tui.app.widgets.base.styled_text import Span, line
from tfckpt_tui.formats.checkpoint_columns import optional_columns
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.settings.config import AppSection, Config, NotifySequence, write_settings

_FITTING, _ALWAYS, _NEVER = "if it fits", "always", "never"
_POLLS = (None, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


_VALUE_WIDTH, _SOURCE_WIDTH = 23, 8


@dataclass(frozen=True)
class SettingRow:
    """One row.

    Attributes:
        section: The section of the file.
        name: The name in this section.
        title: What it does.
        values: All possible values; a single one cannot be changed.
        value: The current value.
        is_own: Whether the file sets it.
    """

    section: str
    name: str
    title: str
    values: tuple[object, ...]
    value: object
    is_own: bool = False

    @property
    def key(self) -> str:
        """A key that is unique for each setting."""
        return f"{self.section}.{self.name}"

    def turned(self, places: int) -> object:
        """Returns the value `places` further; wraps around at the end."""
        place = self.values.index(self.value) if self.value in self.values else 0
        return self.values[(place + places) % len(self.values)]


class SettingList(ListPane[SettingRow]):
    """All settings, with a cursor."""

    title = "settings"
    columns = (
        Column("title", "setting", 1, align="<"),
        Column("value", "value", _VALUE_WIDTH, align="<"),
        Column("source", "from", _SOURCE_WIDTH, rank=1, align="<"),
    )

    def row_key(self, row: int) -> str:
        """Returns the key of the setting."""
        return self.rows[row].key

    def column_layout(self, width: int) -> Layout:
        """Returns the columns; the values are beside the longest label."""
        longest = max((cell_len(setting.title) for setting in self.rows), default=0)
        room = width - _VALUE_WIDTH - GAP
        if room - GAP - _SOURCE_WIDTH >= longest:
            room -= GAP + _SOURCE_WIDTH
        title, *others = self.columns
        return choose((replace(title, width=max(1, min(longest, room))), *others), width)

    def cells(self, row: SettingRow, layout: Layout) -> Mapping[str, Sequence[Span]]:
        """Returns one setting."""
        del layout
        can_change = len(row.values) > 1
        value = clean(_in_words(row.value))
        shown = f"◂ {value} ▸" if can_change else f"  {value}"
        return {
            "title": ((clean(row.title), "value"),),
            "value": ((shown, "strong" if can_change else "muted"),),
            "source": (("the file" if row.is_own else "default", "muted"),),
        }


def _in_words(value: object) -> str:
    if value is None:
        return "off"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g} s" if isinstance(value, float) else str(value)


class SettingsScreen(Page):
    """All settings; changes apply at once."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "right,enter,space",
            "turn(1)",
            "change",
            tooltip="Selects the next value; ← the previous one.",
        ),
        Binding("left", "turn(-1)", "Change back", show=False),
        Binding("comma", "close", "Back", show=False),
    ]
    AUTO_FOCUS = "#setting-list"
    caption = "the settings"

    def __init__(self, themes: list[str], place: Path | None, section: str = "") -> None:
        """Makes the screen.

        Args:
            themes: The names of all themes.
            place: The configuration file.
            section: The section whose settings are listed; by default all are.
        """
        super().__init__()
        self._themes = tuple(sorted(themes))
        self._place = place
        self._section = section
        self._changed: dict[str, object] = {}
        self._writing = threading.Lock()

    def compose(self) -> ComposeResult:
        """Makes the list, the path of the file, and the keys."""
        yield SettingList(id="setting-list")
        yield TextPane(boxed=False, id="place")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Shows the settings."""
        self._show_place()
        self._update()

    def show(self, snapshot: RunSnapshot) -> None:
        """Ignores snapshots: they change no setting."""
        del snapshot

    def action_turn(self, places: int) -> None:
        """Selects the next or the previous value, and saves it."""
        setting = self.query_one(SettingList).selected
        if setting is None or len(setting.values) < 2:
            return
        name, value = setting.name, setting.turned(places)
        if setting.section == "app.bell":
            rung = set(self.run_app.config.app.bell) ^ {EventKind(name)}
            name, value = "bell", [kind.value for kind in EventKind if kind in rung]
        if setting.section == "app.columns":
            chosen = dict(self.run_app.config.app.columns)
            chosen.pop(name, None)
            if value != _FITTING:
                chosen[name] = value == _ALWAYS
            name, value = "columns", chosen
        self.run_app.change_setting(name, value)
        self._update()
        self._changed[name] = value
        # The thread may write only after the page was closed, and has no app then.
        work = partial(self._save, self.run_app.default_keys)
        self.run_app.start_job("save the settings", work, lambda _: self._show_place())

    def _save(self, default_keys: Mapping[str, str]) -> None:
        # Each write has all changes so far, so the last one wins.
        with self._writing:
            write_settings("app", dict(self._changed), default_keys)

    def _show_place(self) -> None:
        """Shows where the settings are saved."""
        if not self.is_attached:
            return
        if self._place is None:
            shown = line((NO_HOME, "label"))
        else:
            verb = "edit" if self._place.exists() else "create"
            words = (("saved in ", "label"), (str(self._place), "value"))
            shown = line(*words, (f"; {verb} it to change keys", "muted"))
        self.query_one("#place", TextPane).show_lines([shown])

    def _update(self) -> None:
        settings = all_settings(
            self.run_app.config, self.run_app.actions, self._themes, self.app.theme
        )
        listed = [setting for setting in settings if self._section in {"", setting.section}]
        self.query_one(SettingList).show_rows(listed)


def all_settings(
    config: Config, actions: Sequence[ActionInfo], themes: tuple[str, ...], theme: str
) -> list[SettingRow]:
    """Returns all settings; the last ones, charts and keys, can only be changed in the file."""
    app, usual = config.app, AppSection()
    charts = ", ".join(app.charts)
    polls = tuple(sorted({*_POLLS[1:], app.poll} - {None}, key=lambda poll: poll or 0.0))
    return [
        SettingRow("app", "theme", "colours", themes, theme, theme != usual.theme),
        SettingRow(
            "app",
            "poll",
            "polling interval, from the next start",
            (None, *polls),
            app.poll,
            app.poll is not None,
        ),
        SettingRow(
            "app",
            "notify",
            "notification of the terminal, where the bell rings",
            tuple(kind.value for kind in NotifySequence),
            app.notify.value,
            app.notify is not usual.notify,
        ),
        *(
            SettingRow(
                "app.bell",
                kind.value,
                f"ring the bell: {kind.value}",
                (False, True),
                kind in app.bell,
                (kind in app.bell) != (kind in usual.bell),
            )
            for kind in EventKind
        ),
        *(
            SettingRow(
                "app.columns",
                key,
                f"column: {title}",
                (_FITTING, _ALWAYS, _NEVER),
                _FITTING if key not in app.columns else _ALWAYS if app.columns[key] else _NEVER,
                key in app.columns,
            )
            for key, title in optional_columns().items()
        ),
        SettingRow(
            "app",
            "charts",
            "charts of the dashboard",
            (charts,),
            charts,
            app.charts != usual.charts,
        ),
        *(
            SettingRow(
                "keys",
                action.name,
                f"key: {action.title}",
                (config.keys.get(action.name, action.key),),
                config.keys.get(action.name, action.key),
                action.name in config.keys,
            )
            for action in actions
        ),
    ]
