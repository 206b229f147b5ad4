"""What `config` prints."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from tfckpt_tui.reports.base import Report


class Setting(msgspec.Struct, frozen=True):
    """One setting.

    Attributes:
        section: `app`, `app.columns`, `retention`, `keys`, `actions.NAME`, `themes.NAME`,
            `themes.NAME.colours`.
        name: Its name in that section.
        value: A text, a number, a list, or true or false; null if not set.
        source: Where the value comes from.
    """

    section: str
    name: str
    value: Any
    source: Literal["file", "default"]


class ConfigReport(Report, frozen=True, kw_only=True):
    """The configuration.

    Attributes:
        path: Path of the configuration file, even if it does not exist; null without a home
            directory.
        exists: Whether it exists.
    """

    path: str | None
    exists: bool
    settings: tuple[Setting, ...]
