"""Completes the names of hyperparameters."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.formats.text import clean
from tfckpt_tui.services.runs.hyperparameters import read_hyperparameters


class HyperparameterName(click.types.StringParamType):
    """The name of a hyperparameter of the run that the same command line names."""

    name = "text"

    def __init__(self, suffix: str = "") -> None:
        self._suffix = suffix

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Returns the names that begin so."""
        del param
        directory = ctx.params.get("directory") or next(iter(ctx.args), "")
        names: list[str] = []
        with suppress(TfckptError, OSError):
            values = read_hyperparameters(RunDirectory(Path(directory).expanduser())).values
            names = [f"{clean(name)}{self._suffix}" for name in values]
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]
