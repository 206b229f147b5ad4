"""Reads, checks and changes the configuration file, `config.toml`."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from tfckpt_trainer.catalog.retention.own_rules import recorded_verdicts
from tfckpt_trainer.catalog.retention.policy import Policy, RetentionSettings
from tfckpt_trainer.errors import NotTrustedError, UsageError
from tfckpt_trainer.machine.user_directories import NO_HOME, config_directory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.files import provide_directory, write_atomic
from tfckpt_trainer.rundir.storage.owners import require_owner
from tfckpt_tui.formats.checkpoint_columns import optional_columns
from tfckpt_tui.settings.keys import check_keys
from tfckpt_tui.settings.own_actions import ActionSection, check_actions

MOST_CHARTS = 4
"""Charts that the dashboard shows at most."""

_SIZE_LIMIT = 1 << 20


class NotifySequence(StrEnum):
    """Notifications of terminals, by the number of their control sequence."""

    AUTO = "auto"
    OSC9 = "osc9"
    OSC777 = "osc777"
    OSC99 = "osc99"
    OFF = "off"


class AppSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the app looks and behaves.

    Attributes:
        theme: A theme of this app or of Textual.
        poll: Seconds between scans; None to wait for file events.
        bell: Kinds of events for which the terminal's bell rings.
        notify: The terminal's notification for these events; `auto` chooses the one that the
            terminal is known to show, or none.
        charts: What the charts of the dashboard show: metrics, `throughput`, `step time`. `loss` is
            the main metric of a run that reports none of that name.
        columns: Columns of the history that are always shown, or never; the others are shown
            where they fit, those that differ between checkpoints first.
    """

    theme: str = "tfckpt-dark"
    poll: float | None = None
    bell: list[EventKind] = msgspec.field(default_factory=lambda: [EventKind.WORKER_LOST])
    notify: NotifySequence = NotifySequence.AUTO
    charts: list[str] = msgspec.field(default_factory=lambda: ["loss", "throughput"])
    columns: dict[str, bool] = {}


class ThemeSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A custom theme: another theme with some colours replaced.

    Attributes:
        based_on: The theme that provides all other colours.
        dark: Whether its background is dark; None to take that from `based_on`.
        colours: The colours by name (`primary`, `success`, `background`, …, `branch-0`), each as
            `#rrggbb` or a colour name.
    """

    based_on: str = "tfckpt-dark"
    dark: bool | None = None
    colours: dict[str, str] = {}


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings for all runs.

    Attributes:
        retention: Which checkpoints `prune` keeps, unless options or the trainer of the run say so.
        app: How the app looks and behaves.
        keys: Keys of actions, by action; several keys are separated by commas.
        themes: Custom themes by name.
        actions: The user's own actions by name.
    """

    retention: RetentionSettings = RetentionSettings()
    app: AppSection = AppSection()
    keys: dict[str, str] = {}
    themes: dict[str, ThemeSection] = {}
    actions: dict[str, ActionSection] = {}

    @property
    def result_columns(self) -> tuple[str, ...]:
        """The names of the numbers that own actions store."""
        columns = (column for action in self.actions.values() for column in action.columns)
        return tuple(dict.fromkeys(columns))


class DefaultPolicy(msgspec.Struct, frozen=True):
    """The policy of a prune for which none was given.

    Attributes:
        policy: Empty if there is none.
        source: Where the policy comes from; of an empty one, why there is none.
        trash_hours: Hours after which the prune also deletes for good what is in the trash; None
            never deletes.
        is_known: Whether the trainer's own policy could be read, if it has one.
    """

    policy: Policy
    source: str
    trash_hours: float | None = None
    is_known: bool = True


def config_path() -> Path | None:
    """Returns the path of the configuration file, which may not exist.

    Returns:
        None without a home directory.
    """
    directory = config_directory()
    return directory / "config.toml" if directory is not None else None


def read_config(default_keys: Mapping[str, str], path: Path | None = None) -> Config:
    """Reads a configuration file.

    Args:
        default_keys: The key of each action by its name; `[keys]` is checked against them.
        path: The file; by default the user's own, which may not exist.

    Raises:
        UsageError: The file cannot be read, is not TOML, or has an invalid key or value; or it
            defines actions, and another user could have written it.
    """
    place = path or config_path()
    if place is None:
        return Config()
    try:
        with open(place, "rb") as file:
            raw = tomllib.loads(file.read(_SIZE_LIMIT).decode())
            section = raw.pop("retention", {})
            config = msgspec.convert(raw, Config)
            if config.actions:
                require_owner(place, file.fileno(), os.geteuid())
    except (FileNotFoundError, NotADirectoryError):
        if path is None:
            return Config()
        raise UsageError(f"{path} does not exist; name another file with --config.") from None
    except OSError as error:
        raise UsageError(f"{place} cannot be read: {error.strerror}.") from error
    except NotTrustedError as error:
        raise UsageError(f"{error} The file defines actions, which run commands.") from error
    except msgspec.ValidationError as error:
        raise UsageError(f"{place}: {error}. {_known_keys(raw)}") from error
    except (ValueError, RecursionError) as error:
        # Also numbers of too many digits.
        raise UsageError(f"{place} is not valid TOML: {error}.") from error
    config = msgspec.structs.replace(config, retention=_read_retention(place, section))
    _check_app(place, config)
    own_keys = {name: action.key for name, action in config.actions.items()}
    try:
        check_actions(config.actions, default_keys)
    except UsageError as error:
        raise UsageError(f"{place}, {error}") from error
    try:
        check_keys(config.keys, {**default_keys, **own_keys})
    except UsageError as error:
        raise UsageError(f"{place}, [keys]: {error}") from error
    return config


def default_policy(
    info: RunInfo | None, config: Config, place: Path | None = None
) -> DefaultPolicy:
    """Returns the policy to prune by if none is given: the one of the trainer comes first.

    Args:
        info: The run, if it has a description.
        config: A configuration file.
        place: Path of that file, if the user named it: the trainer's policy does not count then,
            except for the rules of its script.

    Raises:
        UsageError: The user named a file, and what `info` says about these rules is invalid.
    """
    if place is None and info is not None and info.retention is not None:
        try:
            policy = RetentionSettings.from_json(info.retention).policy
        except UsageError as error:
            # Without the trainer's rules, a prune could delete what the trainer keeps.
            problem = f"the policy in run.json is invalid: {str(error).rstrip('.')}"
            return DefaultPolicy(Policy(), problem, is_known=False)
        if not policy.is_empty:
            return DefaultPolicy(policy, "the trainer's own policy")
    policy = config.retention.policy
    if not policy.is_empty:
        source = str(place or config_path() or "the configuration file")
        own = recorded_verdicts(info.retention) if info is not None else ()
        return DefaultPolicy(policy.with_own(own), source, config.retention.trash_hours)
    if place is not None:
        return DefaultPolicy(policy, f"{place} has none in [retention]")
    where = config_path() or "a configuration file"
    return DefaultPolicy(policy, f"neither the trainer of this run nor {where} has a rule")


def _known_keys(raw: dict[str, Any]) -> str:
    """Returns the known keys of the sections that a file has."""
    sections = {
        "app": list(AppSection.__struct_fields__),
        "actions.NAME": list(ActionSection.__struct_fields__),
    }
    told = [
        f"Keys of [{name}] are {', '.join(keys)}."
        for name, keys in sections.items()
        if name.partition(".")[0] in raw
    ]
    return " ".join(told) or f"Sections are {', '.join(Config.__struct_fields__)}."


def _check_app(place: Path, config: Config) -> None:
    if config.app.poll is not None and not config.app.poll >= 0.1:
        raise UsageError(f"{place}, [app]: poll is {config.app.poll}; it must be 0.1 or more.")
    charts = config.app.charts
    if not 1 <= len(charts) <= MOST_CHARTS or len({*map(str.strip, charts), ""}) <= len(charts):
        raise UsageError(
            f"{place}, [app]: charts is {charts}; it must be 1 to {MOST_CHARTS} different names, "
            "none empty."
        )
    columns = optional_columns()
    unknown = sorted(config.app.columns.keys() - columns.keys())
    if unknown:
        names = ", ".join(columns)
        raise UsageError(f"{place}, [app.columns]: no column `{unknown[0]}`. Columns are {names}.")


def _read_retention(place: Path, section: Any) -> RetentionSettings:
    keys = [key for key in RetentionSettings.known_keys() if key != "make_room"]
    try:
        if not isinstance(section, dict):
            raise UsageError("it is not a section; write [retention].")
        if section.get("make_room"):
            raise UsageError(
                "make_room is for a trainer whose save does not fit; give it to "
                "TrainingRun(make_room=True)."
            )
        unknown = sorted(section.keys() - {*keys, "make_room"})
        if unknown:
            names = ", ".join(keys)
            raise UsageError(f"unknown key `{unknown[0]}`. Keys of [retention] are {names}.")
        return RetentionSettings.from_json(section)
    except UsageError as error:
        raise UsageError(f"{place}, [retention]: {error}") from error


def write_settings(
    section: str,
    values: Mapping[str, object],
    default_keys: Mapping[str, str],
    path: Path | None = None,
) -> Path:
    """Sets values in `[section]`; None removes a key, which restores its default.

    Args:
        section: The name of the section.
        values: By name.
        default_keys: The key of each action by its name, to check the file.
        path: The file; by default the one at the XDG place.

    Returns:
        The file.

    Raises:
        UsageError: The file is invalid, and stays unchanged; or there is no home directory.
        OSError: It cannot be written.
    """
    # Imported late: only a change needs it.
    import tomlkit

    place = path or config_path()
    if place is None:
        raise UsageError(NO_HOME)
    read_config(default_keys, place if place.exists() else None)
    # Not as a text: its line ends stay.
    before = place.read_bytes().decode() if place.exists() else ""
    document = tomlkit.parse(before)
    if section not in document:
        document[section] = tomlkit.table()
    table = document[section]
    if not isinstance(table, dict):
        raise UsageError(f"{place}: [{section}] is not a table; edit the file to make it one.")
    for name, value in values.items():
        if value is None:
            table.pop(name, None)
        else:
            table[name] = value
    provide_directory(place.parent)
    # If the file is a symbolic link, as with dotfiles, it stays one.
    write_atomic(place.resolve(), tomlkit.dumps(document).encode())
    return place
