"""The settings for all runs: changed with the arrows, in force at once, kept in the file."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tfckpt_trainer.rundir.records.event import JournalKind
from tfckpt_tui.app.actions import ACTIONS
from tfckpt_tui.app.screens.page import Page
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.app.widgets.base.styled_text import line
from tfckpt_tui.app.widgets.base.text_pane import TextPane
from tfckpt_tui.app.widgets.run.setting_list import Setting, SettingList
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.settings.config import AppSection, Config
from tfckpt_tui.settings.edit import write_settings

_POLLS = (None, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class SettingsScreen(Page):
    """What can be set for all runs."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,enter,space", "turn(1)", "change", tooltip="The next value; ← the last."),
        Binding("left", "turn(-1)", "Change back", show=False),
        Binding("comma", "close", "Back", show=False),
    ]
    AUTO_FOCUS = "#setting-list"
    caption = "the settings"

    def __init__(self, themes: list[str], place: Path | None) -> None:
        """Makes the screen.

        Args:
            themes: Names of all themes that there are.
            place: The configuration file; None without a home directory.
        """
        super().__init__()
        self._themes = tuple(sorted(themes))
        self._place = place
        self._changed: dict[str, object] = {}
        self._writing = threading.Lock()

    def compose(self) -> ComposeResult:
        """Makes the list, where it is kept, and the keys."""
        yield SettingList(id="setting-list")
        yield TextPane(boxed=False, id="place")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Shows what is set."""
        words = (
            ("kept in ", "label"),
            (str(self._place or "this app only: there is no home directory"), "value"),
        )
        self.query_one("#place", TextPane).show_lines(
            [line(*words, ("; keys are changed there", "muted"))]
        )
        self._update()

    def show(self, snapshot: RunSnapshot) -> None:
        """Takes a newer snapshot, which changes no setting."""
        del snapshot

    def action_turn(self, places: int) -> None:
        """Sets the next or the previous value, and keeps it."""
        setting = self.query_one(SettingList).selected
        if setting is None or len(setting.values) < 2:
            return
        name, value = setting.name, setting.turned(places)
        if setting.section == "app.bell":
            rung = set(self.tfckpt.config.app.bell) ^ {JournalKind(name)}
            name, value = "bell", [kind.value for kind in JournalKind if kind in rung]
        self.tfckpt.set(name, value)
        self._update()
        self._changed[name] = value
        self.tfckpt.start_job("keep the settings", self._keep)

    def _keep(self) -> None:
        # One after the other, each with all that was changed by then: the last one wins.
        with self._writing:
            write_settings("app", dict(self._changed))

    def _update(self) -> None:
        self.query_one(SettingList).show_settings(
            settings(self.tfckpt.config, self._themes, self.tfckpt.theme)
        )


def settings(config: Config, themes: tuple[str, ...], theme: str) -> list[Setting]:
    """Returns all settings, those that cannot be changed here at the end."""
    app, usual = config.app, AppSection()
    polls = tuple(sorted({*_POLLS[1:], app.poll} - {None}, key=lambda poll: poll or 0.0))
    return [
        Setting("app", "theme", "colours", themes, theme, theme != usual.theme),
        Setting(
            "app",
            "poll",
            "poll the directory, from the next start",
            (None, *polls),
            app.poll,
            app.poll is not None,
        ),
        *(
            Setting(
                "app.bell",
                kind.value,
                f"ring the bell: {kind.value}",
                (False, True),
                kind in app.bell,
                kind in app.bell,
            )
            for kind in JournalKind
        ),
        *(
            Setting(
                "keys",
                action.name,
                f"key: {action.title}",
                (config.keys.get(action.name, action.key),),
                config.keys.get(action.name, action.key),
                action.name in config.keys,
            )
            for action in ACTIONS
        ),
    ]
