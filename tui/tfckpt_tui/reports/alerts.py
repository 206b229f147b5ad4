"""What `alert test` prints."""

from __future__ import annotations

from typing import ClassVar

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
