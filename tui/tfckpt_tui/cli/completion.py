"""The `completion` command."""

from __future__ import annotations

import sys

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands in a shell.

    For bash: tfckpt-tui completion bash >> ~/.bashrc
    """
    from tfckpt_tui.cli.main import cli

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"There is no completion for {shell}.")
    sys.stdout.write(kind(cli, {}, "tfckpt-tui", "_TFCKPT_TUI_COMPLETE").source() + "\n")
