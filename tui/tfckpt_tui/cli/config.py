"""What a user sets up once: the `config` and `completion` commands."""

from __future__ import annotations

import json
import sys

import click
import msgspec
from click.shell_completion import get_completion_class

from tfckpt_trainer.machine.user_directories import NO_HOME
from tfckpt_tui.app.actions.table import DEFAULT_KEYS
from tfckpt_tui.cli.completion import VARIABLE
from tfckpt_tui.cli.completion.shells import register
from tfckpt_tui.cli.main import prints
from tfckpt_tui.cli.output import print_json, print_line, print_message
from tfckpt_tui.reports.configured import ConfigReport, Setting
from tfckpt_tui.settings.config import Config, config_path, read_config
from tfckpt_tui.settings.own_actions import ActionSection


@click.command()
@prints(ConfigReport)
def config(as_json: bool) -> None:
    """Show every setting with its value, and whether the value comes from the file."""
    configuration = read_config(DEFAULT_KEYS)
    if configuration.themes or configuration.app.theme != Config().app.theme:
        # Imported late: the themes need Textual.
        from tfckpt_tui.app.themes import themes_with

        themes_with(configuration)
    path, settings = config_path(), _settings(configuration)
    exists = path is not None and path.exists()
    if as_json:
        where = str(path) if path is not None else None
        print_json(ConfigReport(path=where, exists=exists, settings=tuple(settings)))
        return
    if path is None:
        print_message(f"These are the defaults. {NO_HOME}")
    elif not exists:
        print_message(f"{path} does not exist; these are the defaults.")
    else:
        print_line(f"# {path}")
    section = ""
    for setting in settings:
        if setting.section != section:
            section = setting.section
            print_line()
            print_line(f"[{section}]")
        source = "" if setting.source == "default" else "  # from the file"
        print_line(f"{_assignment(setting)}{source}")


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands, directories, checkpoints and tensors in a shell.

    For bash: tfckpt-tui completion bash >> ~/.bashrc

    For zsh, after compinit: tfckpt-tui completion zsh >> ~/.zshrc

    For fish: tfckpt-tui completion fish > ~/.config/fish/completions/tfckpt-tui.fish
    """
    from tfckpt_tui.cli.main import cli

    register()
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"There is no completion for {shell}.")
    sys.stdout.write(kind(cli, {}, "tfckpt-tui", VARIABLE).source() + "\n")


def _settings(configuration: Config) -> list[Setting]:
    settings = []
    for section, given, usual in (
        ("app", msgspec.structs.asdict(configuration.app), msgspec.structs.asdict(Config().app)),
        ("retention", configuration.retention.to_json(), Config().retention.to_json()),
    ):
        for name, value in given.items():
            if name not in {"make_room", "columns"}:
                settings.append(_setting(section, name, value, value != usual[name]))
    settings += [
        _setting("app.columns", *column, True) for column in configuration.app.columns.items()
    ]
    # The configuration may name keys of actions that other packages bring.
    for name, key in {**dict.fromkeys(configuration.keys, ""), **DEFAULT_KEYS}.items():
        own = configuration.keys.get(name)
        settings.append(_setting("keys", name, key if own is None else own, own is not None))
    for name, action in configuration.actions.items():
        usual = msgspec.structs.asdict(ActionSection(command=""))
        settings += [
            _setting(f"actions.{name}", field, value, value != usual[field])
            for field, value in msgspec.structs.asdict(action).items()
        ]
    for name, theme in configuration.themes.items():
        base = _setting(f"themes.{name}", "based_on", theme.based_on, True)
        colours = [
            _setting(f"themes.{name}.colours", *colour, True) for colour in theme.colours.items()
        ]
        settings += [base, *colours]
    return settings


def _setting(section: str, name: str, value: object, is_own: bool) -> Setting:
    return Setting(section, name, msgspec.to_builtins(value), "file" if is_own else "default")


def _assignment(setting: Setting) -> str:
    name, value = setting.name, setting.value
    # TOML has no null.
    return f"# {name} is not set" if value is None else f"{name} = {json.dumps(value)}"
