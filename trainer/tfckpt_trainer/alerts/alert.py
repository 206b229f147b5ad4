"""An alert: an event of the event log, as receivers get it, and what came of sending it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import msgspec

from tfckpt_trainer.rundir.heartbeats.process_ids import host_name
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_trainer.words.clean_text import clean


@dataclass(frozen=True)
class Delivery:
    """What came of sending one alert to one receiver.

    Attributes:
        receiver: The name of the receiver.
        is_sent: Whether the receiver accepted the alert.
        result: How it went, as the end of a sentence that begins with the receiver.
        seconds: How long it took, with all tries.
        http_status: The last answer of a webhook; None if it gave none.
        tries: How often it was tried.
    """

    receiver: str
    is_sent: bool
    result: str
    seconds: float
    http_status: int | None = None
    tries: int = 1


ALERT_KINDS = frozenset(
    {
        EventKind.GUARD,
        EventKind.FAILED,
        EventKind.WORKER_LOST,
        EventKind.RESTART,
        EventKind.DEGRADED,
        EventKind.STALLED,
        EventKind.PREEMPT,
        EventKind.REQUEUE,
        EventKind.NOT_FINITE,
        EventKind.STOP,
        EventKind.FINISH,
    }
)
"""The kinds of events that are sent if the settings name none."""

BY_ALERTS = "alerts"
"""The author of events about alerts that could not be sent; these are never alerts."""

_MOST_DETAILS = 32_000
"""Longest details, in characters of JSON; longer ones are left out."""

_SLACK_CODES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class AlertMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One alert; all its text is cleaned.

    Attributes:
        id: The same for each try to send it, so that a receiver can tell repetitions.
        kind: The kind of event.
        message: What happened, as a sentence.
        at: When it happened, in seconds since the epoch.
        run: The run directory.
        host: The machine that sends it.
        step: The step at which it happened; None if the event has none.
        branch: The branch of that step.
        checkpoint: The checkpoint that it concerns, if one.
        by: Who caused it; empty if nobody did.
        details: Values, by kind of event.
        is_test: Whether it is a test; nothing has happened then.
    """

    id: str
    kind: EventKind
    message: str
    at: float
    run: str
    host: str
    step: int | None = None
    branch: int | None = None
    checkpoint: str | None = None
    by: str = ""
    details: dict[str, Any] = {}
    is_test: bool = False


def make_alert(run: RunDirectory, entry: EventEntry, *, is_test: bool = False) -> AlertMessage:
    """Returns the alert of an event."""
    known = f"{run.root}\n{entry.at!r}\n{entry.kind}\n{entry.message}"
    try:
        details = _cleaned(entry.details)
        is_small = len(json.dumps(details)) <= _MOST_DETAILS
    except RecursionError:
        is_small = False
    return AlertMessage(
        id=hashlib.sha256(known.encode(errors="replace")).hexdigest()[:16],
        kind=entry.kind,
        message=clean(entry.message),
        at=entry.at,
        run=clean(str(run.root)),
        host=host_name(),
        step=entry.step,
        branch=entry.branch,
        checkpoint=clean(entry.checkpoint) if entry.checkpoint is not None else None,
        by=clean(entry.by),
        details=details if is_small else {},
        is_test=is_test,
    )


def json_body(alert: AlertMessage) -> bytes:
    """Returns an alert as one line of JSON."""
    return msgspec.json.encode(alert) + b"\n"


def slack_body(alert: AlertMessage) -> bytes:
    """Returns a message of Slack; its text cannot mention anybody or hide a link."""
    what = "test of an alert" if alert.is_test else alert.kind.value
    step = f" (step {alert.step:,})" if alert.step is not None else ""
    text = f"{what}: {alert.message}{step}\n{alert.run} on {alert.host}"
    return msgspec.json.encode({"text": text.translate(_SLACK_CODES)})


def _cleaned(value: Any) -> Any:
    """Returns values of JSON with all their text cleaned."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(key)): _cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]
    return value
