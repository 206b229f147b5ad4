"""Sends a test alert to the receivers of a run, from this machine."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec

from tfckpt_trainer.alerts.alert import Delivery, make_alert
from tfckpt_trainer.alerts.receivers import make_receivers
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_trainer.rundir.run_config import read_run_config


def send_test_alert(run: RunDirectory, kind: EventKind) -> list[Delivery]:
    """Sends an alert to all receivers at once, without retries; waits for all.

    Args:
        run: The run directory.
        kind: The kind of event that it tells, also if events of this kind are not sent.

    Raises:
        UsageError: The run has no receivers, or its settings cannot be used.
    """
    settings = read_run_config(run, to_send=True).alerts
    if not settings.has_receivers:
        raise UsageError(
            f"{run.config_file} names no receiver of alerts; expected [[alerts.commands]] or "
            "[[alerts.webhooks]]."
        )
    webhooks = tuple(msgspec.structs.replace(one, retries=0) for one in settings.webhooks)
    receivers = make_receivers(msgspec.structs.replace(settings, webhooks=webhooks), os.environ)
    message = "This is a test. Nothing has happened."
    entry = EventEntry(at=time.time(), kind=kind, message=message)
    alert = make_alert(run, entry, is_test=True)
    with ThreadPoolExecutor(len(receivers)) as threads:
        return list(threads.map(lambda receiver: receiver.deliver(alert), receivers))
