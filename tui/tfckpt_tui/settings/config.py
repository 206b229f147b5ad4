"""Reads and checks the configuration file, `config.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tfckpt_trainer.catalog.retention.rules import Policy, policy_from
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.records.event import JournalKind
from tfckpt_trainer.rundir.records.run import RetentionRules, RunInfo
from tfckpt_trainer.user_directories import config_directory

_RENAMED_ACTIONS = {"remarks": "diagnostics"}
"""Actions of version 0.1 that have been renamed."""

_SIZE_LIMIT = 1 << 20
_TAKEN_KEYS = {"ctrl+c": "it ends programs", "ctrl+z": "it suspends them"}
"""Keys that the terminal needs, and why."""


class RetentionSection(RetentionRules, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rules as a person writes them, where a key that nobody knows is a slip."""


class AppSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the app looks and behaves.

    Attributes:
        theme: A theme of this app or of Textual.
        poll: Seconds between scans; None to wait for file events.
        bell: Kinds of journal entries for which the terminal's bell rings.
    """

    theme: str = "tfckpt-dark"
    poll: float | None = None
    bell: list[JournalKind] = []


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
        retention: Which checkpoints `prune` keeps if neither its options nor the run says so.
        app: How the app looks and behaves.
        keys: Keys of actions, by action; several keys are separated by commas.
        themes: Custom themes by name.
    """

    retention: RetentionSection | None = None
    app: AppSection = AppSection()
    keys: dict[str, str] = {}
    themes: dict[str, ThemeSection] = {}


@dataclass(frozen=True)
class Rules:
    """What a prune goes by.

    Attributes:
        policy: An empty one says that there is none.
        source: Where it comes from, in words; of an empty one, why there is none.
        trash_hours: After how long it also deletes for good what is in the trash, if ever.
    """

    policy: Policy
    source: str
    trash_hours: float | None = None


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
        UsageError: It cannot be read, is not TOML, or has an invalid key or value.
    """
    place = path or config_path()
    if place is None:
        return Config()
    try:
        data = place.read_bytes()[:_SIZE_LIMIT]
        raw = tomllib.loads(data.decode())
        config = _with_current_names(msgspec.convert(raw, Config))
    except (FileNotFoundError, NotADirectoryError):
        if path is None:
            return Config()
        raise UsageError(f"{path} does not exist; name another file with --config.") from None
    except OSError as error:
        raise UsageError(f"{place} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{place} is not valid TOML: {error}.") from error
    except msgspec.ValidationError as error:
        raise UsageError(f"{place}: {error}. {_known_keys(raw)}") from error
    _check(place, config.retention or RetentionSection())
    _check_app(place, config)
    _check_keys(place, config.keys, default_keys)
    return config


def default_rules(info: RunInfo | None, config: Config) -> Rules:
    """Returns what to prune by where nothing is given: the trainer's own policy comes first."""
    if info is not None and info.retention is not None:
        try:
            policy = policy_from(info.retention)
        except UsageError as error:
            # To pass it over would delete what the trainer means to keep.
            return Rules(Policy(), f"run.json has an invalid policy: {str(error).rstrip('.')}")
        if not policy.is_empty:
            return Rules(policy, "the trainer's own policy")
    section = config.retention or RetentionSection()
    policy = policy_from(section)
    if policy.is_empty:
        where = config_path() or "a configuration file"
        why = f"neither the trainer of this run nor {where} has a rule"
        return Rules(policy, why)
    return Rules(policy, "the configuration file", section.trash_hours)


def _known_keys(raw: dict[str, Any]) -> str:
    """Returns the keys of the sections that a file has, for an error message."""
    sections = {
        "retention": [n for n in RetentionRules.__struct_fields__ if n != "make_room"],
        "app": list(AppSection.__struct_fields__),
    }
    told = [
        f"Keys of [{name}] are {', '.join(keys)}." for name, keys in sections.items() if name in raw
    ]
    return " ".join(told) or f"Sections are {', '.join(Config.__struct_fields__)}."


def _with_current_names(config: Config) -> Config:
    """Returns the configuration with the current names of renamed actions."""
    keys = {_RENAMED_ACTIONS.get(name, name): key for name, key in config.keys.items()}
    return msgspec.structs.replace(config, keys=keys)


def _check_app(place: Path, config: Config) -> None:
    if config.app.poll is not None and not config.app.poll >= 0.1:
        raise UsageError(f"{place}, [app]: poll is {config.app.poll}; it must be 0.1 or more.")


def _check_keys(place: Path, keys: Mapping[str, str], default_keys: Mapping[str, str]) -> None:
    unknown = sorted(keys.keys() - default_keys.keys())
    if unknown:
        names = ", ".join(default_keys)
        raise UsageError(f"{place}, [keys]: {unknown[0]!r} is not an action. Actions are {names}.")
    taken: dict[str, str] = {}
    for name, default in default_keys.items():
        for key in keys.get(name, default).split(","):
            key = key.strip()
            if key in _TAKEN_KEYS:
                raise UsageError(f"{place}, [keys]: {key} cannot be used: {_TAKEN_KEYS[key]}.")
            if key and key in taken:
                raise UsageError(
                    f"{place}, [keys]: {key} is the key of both {taken[key]} and {name}; "
                    "give one of them another."
                )
            taken[key] = name


def _check(place: Path, section: RetentionSection) -> None:
    try:
        policy_from(section)
    except UsageError as error:
        raise UsageError(f"{place}, [retention]: {error}") from error
    if section.make_room:
        raise UsageError(
            f"{place}, [retention]: make_room is for a trainer, which would not fit a save; give "
            "it to TrainingRun(make_room=True)."
        )
