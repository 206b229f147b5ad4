"""Reads the settings of a run, `config.toml` in its `.tfckpt`, which its user writes."""

from __future__ import annotations

import os
import shlex
import tomllib
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from tfckpt_trainer.errors import DamagedFileError, NotTrustedError, UsageError
from tfckpt_trainer.machine.permissions import advice_about
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.storage.files import open_plain
from tfckpt_trainer.rundir.storage.owners import require_owner

_SIZE_LIMIT = 1 << 18

_Seconds = Annotated[float, msgspec.Meta(gt=0, le=600)]
_Variable = Annotated[str, msgspec.Meta(pattern="^[A-Za-z_][A-Za-z0-9_]*$")]


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A section of the file: an unknown key is an error."""


class CommandSettings(_Section, frozen=True):
    """A command that gets the event as JSON on its standard input.

    Attributes:
        command: The program and its arguments; a text is split as a shell does, without a shell.
        timeout_seconds: After so long the command is killed.
    """

    command: str | list[str]
    timeout_seconds: _Seconds = 30.0

    def __post_init__(self) -> None:
        if not self.arguments or not self.arguments[0]:
            raise ValueError("command is empty; write the program and its arguments")

    @property
    def arguments(self) -> list[str]:
        """The program and its arguments."""
        return shlex.split(self.command) if isinstance(self.command, str) else self.command


class WebhookSettings(_Section, frozen=True):
    """An address that gets the event by HTTPS POST.

    Attributes:
        url: The address, if it is no secret.
        url_env: The environment variable that has the address.
        header: The header that carries a secret.
        header_env: The environment variable that has the value of `header`; none is sent without.
        body: The format of the event: `json`, or a message of Slack.
        timeout_seconds: After so long one try has failed.
        retries: How often a failed request is repeated.
    """

    url: str = ""
    url_env: _Variable | Literal[""] = ""
    header: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9-]+$")] = "Authorization"
    header_env: _Variable | Literal[""] = ""
    body: Literal["json", "slack"] = "json"
    timeout_seconds: _Seconds = 10.0
    retries: Annotated[int, msgspec.Meta(ge=0, le=10)] = 3

    def __post_init__(self) -> None:
        if bool(self.url) == bool(self.url_env):
            raise ValueError("a webhook needs one of url and url_env")
        refused = why_refused(self.url) if self.url else ""
        if refused:
            raise ValueError(f"url {refused}")


class AlertSettings(_Section, frozen=True):
    """Who is told about which events.

    Attributes:
        kinds: Kinds of events that are sent; None for those of `tfckpt_trainer.alerts`.
        commands: Commands that are run.
        webhooks: Addresses to which the event is posted.
    """

    kinds: tuple[EventKind, ...] | None = None
    commands: tuple[CommandSettings, ...] = ()
    webhooks: tuple[WebhookSettings, ...] = ()

    @property
    def has_receivers(self) -> bool:
        """Whether anybody is told."""
        return bool(self.commands or self.webhooks)


class ExportSettings(_Section, frozen=True):
    """Where the state of the run is written for other programs.

    Attributes:
        openmetrics: The whole path of a text file for Prometheus; empty to write none.
    """

    openmetrics: str = ""

    def __post_init__(self) -> None:
        if self.openmetrics and not os.path.isabs(self.openmetrics):
            raise ValueError(f"openmetrics is {self.openmetrics!r}; write the whole path of a file")


class RunConfig(_Section, frozen=True):
    """The settings of one run.

    Attributes:
        guards: Guards as text; whether they are valid is checked elsewhere.
        alerts: Who is told about which events.
        export: Where the state of the run is written.
    """

    guards: tuple[str, ...] = ()
    alerts: AlertSettings = AlertSettings()
    export: ExportSettings = ExportSettings()

    @property
    def has_receivers(self) -> bool:
        """Whether anything leaves the run directory."""
        return self.alerts.has_receivers or bool(self.export.openmetrics)


_SECTIONS: dict[str, type[msgspec.Struct]] = {
    "the file": RunConfig,
    "[alerts]": AlertSettings,
    "[export]": ExportSettings,
    "[[alerts.commands]]": CommandSettings,
    "[[alerts.webhooks]]": WebhookSettings,
}


def read_run_config(run: RunDirectory, *, to_send: bool = False) -> RunConfig:
    """Reads the settings of a run; those by default if it has no file.

    Args:
        run: The run directory.
        to_send: Whether this process sends the alerts, or writes the file anew as its own.

    Raises:
        UsageError: The file cannot be read, is not TOML, or has an invalid key or value; or its
            alerts are to be sent, and another user could have written them.
    """
    path = run.config_file
    try:
        with open_plain(path) as file:
            data = file.read(_SIZE_LIMIT + 1)
            if len(data) > _SIZE_LIMIT:
                size = os.fstat(file.fileno()).st_size
                raise UsageError(
                    f"{path} has {size} bytes; expected at most {_SIZE_LIMIT}. Shorten it."
                )
            config = _parse(path, data)
            if to_send and config.has_receivers:
                # It names commands to run, environment variables to send, and a file to write.
                require_owner(path, file.fileno(), os.geteuid(), is_read_by_all=True)
            return config
    except (FileNotFoundError, NotADirectoryError):
        return RunConfig()
    except OSError as error:
        found = f"{path} cannot be read: {error.strerror}."
        raise UsageError(found, advice_about(error)) from error
    except DamagedFileError as error:
        raise UsageError(str(error)) from error
    except NotTrustedError as error:
        who = "The file sends alerts, which only processes of its owner do."
        raise UsageError(f"{error} {who}") from error


def _parse(path: Path, data: bytes) -> RunConfig:
    try:
        return msgspec.convert(tomllib.loads(data.decode()), RunConfig)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}. {_what_is_known(error)}") from error
    except (ValueError, RecursionError) as error:
        # Also numbers of too many digits.
        raise UsageError(f"{path} is not valid TOML: {error}. Correct the file.") from error


def why_refused(url: str) -> str:
    """Returns what is wrong with the address of a webhook; empty if nothing is.

    The answer does not repeat the address, which may be a secret.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is not an address; expected https://HOST/PATH"
    if parts.scheme not in {"http", "https"} or not host or not url.isascii():
        return "is not an address; expected https://HOST/PATH"
    if any(character <= " " or character == "\x7f" for character in url):
        return "has a space or a control character; remove it"
    if parts.username is not None or parts.password is not None:
        return "has a password; put the value of a header into an environment variable instead"
    if parts.scheme == "http" and not _is_loopback(host):
        return "is http; expected https, or http to this machine itself"
    return ""


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _what_is_known(error: msgspec.ValidationError) -> str:
    """Returns the keys of the sections, or the kinds of events."""
    if "alerts.kinds" in str(error):
        return f"Kinds are {', '.join(EventKind)}."
    told = (
        f"of {section}: {', '.join(kind.__struct_fields__)}" for section, kind in _SECTIONS.items()
    )
    return f"Keys {'; '.join(told)}."
