"""The configuration file: `config.toml` at the XDG place, checked with clear errors."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import msgspec

from tfckpt_trainer.catalog.retention import Policy, policy_from
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.records import RetentionRules, RunInfo

_SIZE_LIMIT = 1 << 20


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a person set for all runs.

    Attributes:
        retention: Which checkpoints `prune` keeps where neither it nor the run says otherwise.
    """

    retention: RetentionRules | None = None


def config_path() -> Path:
    """Returns where the configuration file is, whether it exists or not."""
    place = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(place) / "tfckpt-tui" / "config.toml"


def read_config(path: Path | None = None) -> Config:
    """Reads a configuration file.

    Args:
        path: The one at the XDG place by default, which need not exist.

    Raises:
        UsageError: It cannot be read, is no TOML, or has a key or a value that makes no sense.
    """
    place = path or config_path()
    try:
        data = place.read_bytes()[:_SIZE_LIMIT]
        raw = tomllib.loads(data.decode())
        config = msgspec.convert(raw, Config)
    except FileNotFoundError:
        if path is None:
            return Config()
        raise UsageError(f"{path} does not exist; name another file with --config.") from None
    except OSError as error:
        raise UsageError(f"{place} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{place} is no TOML: {error}.") from error
    except msgspec.ValidationError as error:
        known = ", ".join(RetentionRules.__struct_fields__)
        raise UsageError(f"{place}: {error}. Keys of [retention] are {known}.") from error
    if config.retention is not None:
        try:
            policy_from(config.retention)
        except UsageError as error:
            raise UsageError(f"{place}, [retention]: {error}") from error
    return config


def default_policy(info: RunInfo | None, config: Config) -> tuple[Policy, str]:
    """Returns the policy to prune by where none is given, and in words where it comes from.

    The trainer's own comes first. An empty policy says that there is none.
    """
    if info is not None and info.retention is not None:
        policy = policy_from(info.retention)
        if not policy.is_empty:
            return policy, "the trainer's own policy"
    return policy_from(config.retention or RetentionRules()), "the configuration file"
