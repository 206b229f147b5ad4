"""Completes the paths of tensors, from the index and object graph of one checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from tfckpt_trainer.bundle.dtypes import ITEM_SIZES
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.machine.user_directories import expand_user
from tfckpt_trainer.rundir.paths import parse_numbered_name
from tfckpt_tui.cli.completion.checkpoint_names import (
    MOST_OFFERED,
    common_length,
    names_in,
    newest_first,
)
from tfckpt_tui.cli.completion.shells import words_of_shell
from tfckpt_tui.formats.text import clean


class TensorName(click.types.StringParamType):
    """A path of a tensor, in the checkpoint that the same command line names, or the newest one.

    Args:
        checkpoint: The parameter that names the checkpoint; empty if none does.
    """

    name = "text"

    def __init__(self, checkpoint: str = "") -> None:
        self._checkpoint = checkpoint

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Returns the paths that begin so; see `offered_paths`."""
        del param
        # After an option without its value, click has not named the arguments.
        words = [*ctx.args, "", ""]
        directory = ctx.params.get("directory") or words[0]
        if not directory:
            return []
        checkpoint = ctx.params.get(self._checkpoint) or words[1] if self._checkpoint else ""
        paths = paths_in(expand_user(directory), checkpoint)
        return [CompletionItem(path) for path in offered_paths(paths, incomplete)]


class TensorAndType(TensorName):
    """The two values of `--cast`: tensors, and their new type."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Returns tensors for the first value, and types for the second."""
        if _is_first_value(param, incomplete):
            return super().shell_complete(ctx, param, incomplete)
        return [CompletionItem(name) for name in sorted(ITEM_SIZES) if name.startswith(incomplete)]


class CopiedTensor(TensorName):
    """The two values of `--copy`: a tensor of another checkpoint, and one of this checkpoint."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Returns tensors; for the first value only those after `CKPT:`."""
        if not _is_first_value(param, incomplete):
            return super().shell_complete(ctx, param, incomplete)
        checkpoint, colon, typed = incomplete.partition(":")
        directory = ctx.params.get("directory") or next(iter(ctx.args), None)
        if directory is None or not colon:
            return []
        paths = paths_in(expand_user(directory), checkpoint)
        return [CompletionItem(f"{checkpoint}:{path}") for path in offered_paths(paths, typed)]


def _is_first_value(param: click.Parameter, incomplete: str) -> bool:
    """Whether the first of the values of an option is completed."""
    words = words_of_shell()
    if incomplete and words[-1:] == [incomplete]:
        words.pop()
    return bool(words) and words[-1] in param.opts


def paths_in(directory: Path, checkpoint: str) -> list[str]:
    """Returns the paths of the tensors of one checkpoint; none if it cannot be read.

    Args:
        directory: The run directory.
        checkpoint: A name or a step; empty for the checkpoint with the highest step.
    """
    from tfckpt_trainer.bundle.analysis.contents import read_contents
    from tfckpt_trainer.bundle.index import read_index

    names = sorted(names_in(directory), key=newest_first)
    if checkpoint and checkpoint not in names:
        steps = ((name, parse_numbered_name(name)) for name in names)
        names = [name for name, said in steps if said and str(said.step) == checkpoint]
    elif checkpoint:
        names = [checkpoint]
    with suppress(TfckptError, OSError):
        if names:
            prefix = directory / names[0]
            return [
                variable.path for variable in read_contents(prefix, read_index(prefix)).variables
            ]
    return []


def offered_paths(paths: Iterable[str], typed: str) -> Sequence[str]:
    """Returns what to offer for the beginning of a path.

    If too many paths begin so, returns the different ways to go on by one part, or by one
    character.

    Args:
        paths: The paths of all tensors.
        typed: What was typed so far.
    """
    offers = {path for path in paths if path.startswith(typed) and clean(path) == path}
    if len(offers) > MOST_OFFERED:
        same = common_length(min(offers), max(offers))
        # Never one alone: the shell would take it for a whole path.
        parts = {path[: path.find("/", same) + 1] or path for path in offers}
        offers = parts if len(parts) <= MOST_OFFERED else {path[: same + 1] for path in offers}
    return sorted(offers)[:MOST_OFFERED]
