"""Finds checkpoints of a run directory by name or step, for the command line."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.directory.other_formats import find_other_file, find_others_at
from tfckpt_trainer.catalog.directory.version_one import VersionOne
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.scan.named_checkpoints import find_named
from tfckpt_trainer.errors import RefusedError, UnknownCheckpointError, UsageError
from tfckpt_trainer.rundir.paths import RunDirectory, parse_numbered_name
from tfckpt_trainer.words.counts import few_of
from tfckpt_tui.services.checkpoints.choose import find_checkpoint

_MOST_NAMED = 3
"""Files that an error names."""


def list_checkpoints(run: RunDirectory, now: float | None = None) -> tuple[Checkpoint, ...]:
    """Returns all checkpoints of a run, newest first."""
    return Catalog(run).scan(time.time() if now is None else now)


def look_up(run: RunDirectory, text: str | None) -> Checkpoint:
    """Returns one checkpoint; see `look_up_all`.

    Args:
        run: The run directory.
        text: A name or a step; by default the checkpoint from which a start continues.

    Raises:
        UsageError: There is none, or several have the step.
    """
    return look_up_all(run, [text])[0]


def look_up_all(run: RunDirectory, texts: Sequence[str | None]) -> list[Checkpoint]:
    """Returns checkpoints; see `find_checkpoint`. Only those that are named are scanned, if that
    is enough to find them.

    Whether they are pinned, listed or the head may be missing.

    Args:
        run: The run directory.
        texts: Names and steps; None is the checkpoint from which a start continues.

    Raises:
        UsageError: There is none, or several have the step.
    """
    now = time.time()
    by_name = find_named(run, [text for text in texts if text is not None], now)
    by_text = {text: by_name.get(text) if text is not None else None for text in texts}
    catalog = Catalog(run)
    checkpoints = () if all(by_text.values()) else catalog.scan(now)
    if None in by_text and not checkpoints:
        raise UsageError(
            f"{run.root} has no checkpoint yet. `tfckpt-tui status {run.shell_word}` shows the "
            "state of the run."
        )
    try:
        return [by_text[text] or find_checkpoint(checkpoints, text) for text in texts]
    except UnknownCheckpointError as error:
        catalog.diagnostics(now)
        if any(_is_named(checkpoint, error.text) for checkpoint in catalog.version_one):
            raise RefusedError(
                f"{error.text} is in TensorFlow's V1 format, which is not supported. "
                f"`tfckpt-tui ls {run.shell_word}` says how to convert it."
            ) from None
        if error.text in catalog.others:
            raise RefusedError(
                f"{error.text} is not a checkpoint: neither the content of its files nor a record "
                "shows that it is one. All commands leave it alone."
            ) from None
        other = find_other_file(run.root, error.text)
        if other is not None:
            raise RefusedError(
                f"{other.name} is no checkpoint of TensorFlow, but {other.format.name}: "
                f"{other.format.reader} loads it."
            ) from None
        at = [f"{file.name} ({file.position})" for file in find_others_at(run.root, error.text)]
        if at:
            raise UnknownCheckpointError(
                f"There is no checkpoint {error.text}, but there are files of other formats: "
                f"{few_of(at, _MOST_NAMED)}. Give the name of one.",
                error.text,
            ) from None
        raise


@contextmanager
def telling_what_became_of(run: RunDirectory, texts: Sequence[str]) -> Iterator[None]:
    """Has a missing file of a checkpoint name what somebody did to that meanwhile.

    Args:
        run: The run directory.
        texts: Names and steps of the checkpoints that are read.

    Raises:
        UsageError: One is in the trash, or gone.
    """
    try:
        yield
    except FileNotFoundError:
        look_up_all(run, texts)
        raise


def _is_named(unsupported: VersionOne, text: str) -> bool:
    """Whether a text is a name or the step of a checkpoint in the V1 format."""
    said = parse_numbered_name(unsupported.name)
    names = {unsupported.name, unsupported.path, *unsupported.files}
    return text in names or (said is not None and text == str(said.step))


def require_restorable(checkpoint: Checkpoint) -> None:
    """Raises a `RefusedError` if a checkpoint is damaged or being written."""
    if not checkpoint.state.restorable:
        problem = f"{checkpoint.name} is {checkpoint.state.value}"
        raise RefusedError(
            f"{problem}: {checkpoint.problem}" if checkpoint.problem else f"{problem}."
        )
