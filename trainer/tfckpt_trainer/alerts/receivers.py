"""The receivers of alerts, one class for each kind, and what came of an attempt to send."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import Protocol

from tfckpt_trainer.alerts.alert import AlertMessage, Delivery, json_body
from tfckpt_trainer.rundir.run_config import AlertSettings, CommandSettings
from tfckpt_trainer.scripts.exit_statuses import exit_words


class Receiver(Protocol):
    """Gets alerts."""

    @property
    def name(self) -> str:
        """Names it in messages; holds no secret."""
        ...

    def deliver(self, alert: AlertMessage) -> Delivery:
        """Sends one alert. Takes as long as its timeouts and retries allow; raises nothing."""
        ...


def make_receivers(settings: AlertSettings, environment: Mapping[str, str]) -> list[Receiver]:
    """Returns the receivers of a run.

    Args:
        settings: Who they are.
        environment: The environment variables that have their secrets.
    """
    receivers: list[Receiver] = [CommandReceiver(command) for command in settings.commands]
    if settings.webhooks:
        # Imported here: HTTP and OpenSSL are a quarter of what a supervisor imports.
        from tfckpt_trainer.alerts.webhook import WebhookReceiver

        receivers += (WebhookReceiver(webhook, environment) for webhook in settings.webhooks)
    return receivers


@dataclass(frozen=True)
class CommandReceiver:
    """Runs a command with the alert as JSON on its standard input.

    Its standard output is discarded; errors go where those of this process go.
    """

    settings: CommandSettings

    @property
    def name(self) -> str:
        """The program, without arguments: they may be secret."""
        return f"command {PurePath(self.settings.arguments[0]).name}"

    def deliver(self, alert: AlertMessage) -> Delivery:
        """Runs the command; it and what it started are killed after its time limit."""
        began = time.monotonic()

        def ended(is_sent: bool, result: str) -> Delivery:
            return Delivery(self.name, is_sent, result, time.monotonic() - began)

        try:
            process = subprocess.Popen(
                self.settings.arguments,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            return ended(False, f"cannot be run: {reason}")
        try:
            process.communicate(json_body(alert), self.settings.timeout_seconds)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return ended(False, f"was killed after {self.settings.timeout_seconds:g} s")
        code = process.returncode
        return ended(code == 0, exit_words(code))
