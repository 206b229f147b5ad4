"""What `config`, `act` and `alert test` print: of the configuration, and of what it names."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_tui.reports.base import Report


class DeliveryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What came of sending the alert to one receiver.

    Attributes:
        receiver: A command or a webhook; secrets are not named.
        sent: Whether it accepted the alert.
        result: How it went, as the end of a sentence that begins with the receiver.
        http_status: The answer of a webhook; null if there was none.
        seconds: How long it took.
    """

    receiver: str
    sent: bool
    result: str
    http_status: int | None
    seconds: float


class AlertTestReport(Report, frozen=True, kw_only=True):
    """A test of alerts.

    Attributes:
        kind: The kind of event that the alert told.
        deliveries: One for each receiver, commands first.
    """

    variant: ClassVar[str] = "test"

    kind: EventKind
    deliveries: tuple[DeliveryFacts, ...]


class ActionRunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One run of an action.

    Attributes:
        checkpoints: The checkpoints that it was for; empty if it was for the run.
        exit_code: Of the command; null if it was not run, negative if a signal ended it.
        seconds: How long it took.
        values: The numbers that were stored, by name.
        problem: Why it failed; empty if it did not.
    """

    checkpoints: tuple[str, ...]
    exit_code: int | None
    seconds: float
    values: dict[str, float]
    problem: str


class ActionReport(Report, frozen=True, kw_only=True):
    """What an action of the user did. Exit code 1 if it failed.

    Attributes:
        action: Its name.
        runs: Each time it was run, in order.
    """

    action: str
    runs: tuple[ActionRunFacts, ...]


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
