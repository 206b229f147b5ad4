"""Adds guards to `config.toml` of a run, removes them, and has a live trainer take them."""

from __future__ import annotations

import stat
from collections.abc import Sequence

from tfckpt_trainer.errors import RefusedError, TfckptError, UsageError
from tfckpt_trainer.guards.guard import Guard
from tfckpt_trainer.guards.trial import why_useless
from tfckpt_trainer.rundir.disk_reserve import begin_change
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import GuardsArguments
from tfckpt_trainer.rundir.run_config import read_run_config
from tfckpt_trainer.rundir.storage.files import make_directory, write_atomic
from tfckpt_trainer.rundir.storage.locks import locked
from tfckpt_tui.services.control.request import DEFAULT_TIMEOUT, FrontEnd, OnChange, ask
from tfckpt_tui.services.control.trainer_presence import detect_trainer
from tfckpt_tui.services.runs.hyperparameters import read_hyperparameters

LOCK_SECONDS = 10.0
"""How long a change waits for another one, which takes milliseconds."""


def change_guards(run: RunDirectory, *, add: Sequence[str], remove: Sequence[str]) -> None:
    """Changes the guards of `config.toml`; the rest of the file stays, with its comments.

    Args:
        run: The run directory.
        add: Texts of guards to add.
        remove: Texts of guards to remove.

    Raises:
        UsageError: A text is no guard, one to add is there or can never act, one to remove is not
            there, or the file is invalid. Nothing is changed.
        RefusedError: The run directory must not be changed, or somebody changed the file meanwhile.
        NotWritableError: It cannot be changed.
        OSError: The file cannot be written.
    """
    # Imported late: only a change needs it.
    import tomlkit

    path = run.config_file
    run.require_changeable()
    kept = [_name(text) for text in read_run_config(run, to_send=True).guards]
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    document = tomlkit.parse(before)
    if "guards" not in document:
        document["guards"] = tomlkit.array().multiline(True)
    texts = document["guards"]
    assert isinstance(texts, list)
    for text in remove:
        if _name(text) not in kept:
            have = "".join(f"\n  {rule}" for rule in kept) or " none"
            raise UsageError(
                f"{path} has no guard {text!r}. A guard of the script is removed there. The guards "
                f"of the file are:{have}"
            )
        place = kept.index(_name(text))
        del kept[place], texts[place]
    guards = [Guard.parse(text) for text in add]
    _refuse_useless(run, guards)
    for rule in map(str, guards):
        if rule in kept:
            raise UsageError(f"{path} has the guard {rule!r} already.")
        kept.append(rule)
        texts.append(rule)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None

    def write() -> None:
        make_directory(run.control, durable=True)
        with locked(path.with_name("config.lock"), LOCK_SECONDS, f"change of {path}"):
            if before != (path.read_text(encoding="utf-8") if path.exists() else ""):
                raise RefusedError(
                    f"Somebody changed {path} meanwhile. Nothing was changed; run this again."
                )
            write_atomic(path, tomlkit.dumps(document).encode(), mode=mode)

    begin_change(run, write)


def take_guards(
    run: RunDirectory,
    *,
    through: FrontEnd,
    timeout: float = DEFAULT_TIMEOUT,
    on_change: OnChange | None = None,
) -> str:
    """Has a live trainer take the guards of `config.toml`.

    Args:
        run: The run directory.
        through: The front end that asks, for the event log.
        timeout: Seconds to wait.
        on_change: Called with each change of the command while waiting.

    Returns:
        What is in force now, or when it will be, as sentences.

    Raises:
        TfckptError: The trainer did not take them. `config.toml` stays changed.
    """
    if not detect_trainer(run).answers:
        return "No trainer answers; the next start takes the guards."
    try:
        done = ask(run, GuardsArguments(), through=through, timeout=timeout, on_change=on_change)
    except TfckptError as error:
        raise type(error)(
            f"{run.config_file} is changed, and the next start takes it. The trainer did not: "
            f"{error.found}",
            error.advice,
        ) from error
    return done.message


def _refuse_useless(run: RunDirectory, guards: Sequence[Guard]) -> None:
    known = read_hyperparameters(run) if guards else None
    if known is None or not (known.values or known.is_live):
        # The next start knows them, and says in the event log which guards cannot act.
        return
    for guard in guards:
        problem = why_useless(guard, known.values)
        if problem:
            raise UsageError(f"The guard {str(guard)!r} cannot act. {problem}")


def _name(text: str) -> str:
    """Returns the text that names a guard; as it is if it is invalid, so that it can be removed."""
    try:
        return str(Guard.parse(text))
    except TfckptError:
        return text
