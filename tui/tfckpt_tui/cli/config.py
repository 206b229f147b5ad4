"""The `config` command: what is set, and where it comes from."""

from __future__ import annotations

import json
from typing import Any

import click
import msgspec

from tfckpt_tui.app.actions import ACTIONS
from tfckpt_tui.cli.main import JsonOption
from tfckpt_tui.cli.output import print_json, print_line, print_words
from tfckpt_tui.settings.config import Config, config_path, read_config


@click.command()
@JsonOption
def config(as_json: bool) -> None:
    """Show the configuration: every setting, its value, and whether the file says so."""
    path, settings = config_path(), _settings(read_config())
    exists = path.exists()
    if as_json:
        print_json({"path": str(path), "exists": exists, "settings": settings})
        return
    if not exists:
        print_words(f"{path} does not exist: everything is as it is by default.")
    else:
        print_line(f"# {path}")
    section = ""
    for setting in settings:
        if setting["section"] != section:
            section = setting["section"]
            print_line()
            print_line(f"[{section}]")
        source = "" if setting["source"] == "default" else "  # from the file"
        print_line(f"{_assignment(setting)}{source}")


def _settings(found: Config) -> list[dict[str, Any]]:
    settings = []
    for section, given, usual in (
        ("app", msgspec.structs.asdict(found.app), msgspec.structs.asdict(Config().app)),
        ("retention", found.retention.to_json(), Config().retention.to_json()),
    ):
        for name, value in given.items():
            if name != "make_room":
                settings.append(_setting(section, name, value, value != usual[name]))
    for action in ACTIONS:
        own = found.keys.get(action.name)
        settings.append(_setting("keys", action.name, own or action.key, own is not None))
    for name, theme in found.themes.items():
        base = _setting(f"themes.{name}", "based_on", theme.based_on, True)
        colours = [_setting(f"themes.{name}.colours", *one, True) for one in theme.colours.items()]
        settings += [base, *colours]
    return settings


def _setting(section: str, name: str, value: object, is_own: bool) -> dict[str, Any]:
    return {
        "section": section,
        "name": name,
        "value": msgspec.to_builtins(value),
        "source": "file" if is_own else "default",
    }


def _assignment(setting: dict[str, Any]) -> str:
    name, value = setting["name"], setting["value"]
    # TOML has no word for nothing.
    return f"# {name} is not set" if value is None else f"{name} = {json.dumps(value)}"
