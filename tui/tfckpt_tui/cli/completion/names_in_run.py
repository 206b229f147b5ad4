"""Completes names of things of a run, other than files."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import click
from click.shell_completion import CompletionItem

from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.machine.user_directories import expand_user
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import GuardSource
from tfckpt_tui.formats.text import clean


class NameInRun(click.types.StringParamType):
    """The name of something of the run that the same command line names."""

    name = "text"

    def names(self, run: RunDirectory) -> Iterable[str]:
        """Returns all names.

        Raises:
            TfckptError: They cannot be read.
            OSError: The directory cannot be read.
        """
        raise NotImplementedError

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Returns the names that begin so."""
        del param
        directory = ctx.params.get("directory") or next(iter(ctx.args), "")
        names: list[str] = []
        with suppress(TfckptError, OSError):
            names = [clean(name) for name in self.names(RunDirectory(expand_user(directory)))]
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


class HyperparameterName(NameInRun):
    """The name of a hyperparameter, and what is to follow."""

    def __init__(self, suffix: str = "") -> None:
        self._suffix = suffix

    def names(self, run: RunDirectory) -> Iterable[str]:
        """Returns the names of the hyperparameters."""
        # Imported here and below: a command that declares its arguments reads none of them.
        from tfckpt_tui.services.runs.hyperparameters import read_hyperparameters

        return [f"{name}{self._suffix}" for name in read_hyperparameters(run).values]


class GuardRule(NameInRun):
    """The text of a guard, or only of one from a source."""

    def __init__(self, source: GuardSource | None = None) -> None:
        self._source = source

    def names(self, run: RunDirectory) -> Iterable[str]:
        """Returns the guards of the run."""
        from tfckpt_tui.services.runs.guards import read_guards

        guards = read_guards(run).guards
        return [guard.rule for guard in guards if self._source in {None, guard.source}]
