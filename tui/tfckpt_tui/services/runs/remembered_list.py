"""Remembers in the user's cache what a list of runs on a network disk showed last.

The list shows it at once, with its age, until it has read the runs. A run that has ended is not
read again if its directory and its event log are as they were.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import NODEFAULT
from msgspec.structs import replace

from tfckpt_trainer.catalog.scan.alerts import Alert
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.launch.batch.jobs import ENDED
from tfckpt_trainer.machine.user_directories import cached_path_of
from tfckpt_trainer.rundir.heartbeats.health import HAS_ENDED
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import SealedDocument, load, store
from tfckpt_trainer.rundir.storage.files import make_directory
from tfckpt_trainer.version import __version__
from tfckpt_trainer.words.advice import Advice
from tfckpt_tui.formats.text import clean
from tfckpt_tui.services.runs.account import RunAccount
from tfckpt_tui.services.runs.file_changes import Signature, is_settled

MOST_RUNS = 5_000
"""Runs of a list that are remembered at most, in the order of the list."""

_DIGITS = 6


class RememberedRun(NamedTuple):
    """A run as a list showed it.

    Attributes:
        account: What the list needs of its account, safe to show.
        signs: What its `signs_of_start` were; empty if it must be read.
        looked_at: When the list looked at it last, in seconds since the epoch.
    """

    account: RunAccount
    signs: Signature
    looked_at: float


class _StoredRun(msgspec.Struct, frozen=True):
    account: dict[str, Any]
    signs: list[tuple[int, int]]
    looked_at: float


class RememberedRuns(SealedDocument, frozen=True, kw_only=True):
    """`runs.json` in the cache of a directory that contains runs.

    Attributes:
        release: The release that wrote it; another one may say other words.
        runs: The runs, in the order of the list.
    """

    is_private = True

    release: str
    runs: list[_StoredRun]


def remember_run_as(account: RunAccount, signs: Signature, looked_at: float) -> RememberedRun:
    """Returns what is remembered of a run.

    Args:
        account: Its account.
        signs: What its `signs_of_start` were when it was read; empty if it must be read.
        looked_at: When it was looked at last, in seconds since the epoch.
    """
    is_known = _has_ended(account) and is_settled(signs, account.at)
    return RememberedRun(_in_short(account), signs if is_known else (), looked_at)


def recall_runs(below: Path) -> Iterator[RememberedRun]:
    """Yields the runs below a directory as they were remembered; none if that cannot be read.

    Args:
        below: The directory; an absolute path.
    """
    path = _path_of(below)
    if path is None:
        return
    try:
        known = load(path, RememberedRuns)
    except (OSError, TfckptError):
        return
    if known.release != __version__:
        return
    for stored in known.runs[:MOST_RUNS]:
        run = _recalled(stored, os.path.join(below, ""))
        if run is not None:
            yield run


def remember_runs(below: Path, runs: Iterable[RememberedRun]) -> None:
    """Stores the runs below a directory; write errors are ignored.

    Args:
        below: The directory.
        runs: The runs, in the order of the list.
    """
    path = _path_of(below)
    if path is None:
        return
    kept = [
        _StoredRun(_as_builtins(run.account), list(run.signs), run.looked_at)
        for run in list(runs)[:MOST_RUNS]
        if _is_text(run.account.root)
    ]
    with suppress(OSError, TfckptError):
        make_directory(path.parent)
        # Not flushed: without it, the runs are read.
        store(path, RememberedRuns(release=__version__, runs=kept), durable=False)


def _path_of(below: Path) -> Path | None:
    # Imported here: it loads OpenSSL. The disk is not asked for links: it may hang.
    import hashlib

    place = cached_path_of("lists", hashlib.sha256(os.fsencode(below)).hexdigest()[:24])
    return place / "runs.json" if place is not None else None


def _has_ended(account: RunAccount) -> bool:
    """Whether nothing goes on in a run of this library, nor waits to start."""
    job = account.job
    is_awaited = job is not None and (job.report is None or job.report.state not in ENDED)
    is_ours = account.info is not None and not account.processes
    return is_ours and account.state in HAS_ENDED and not is_awaited


def _in_short(account: RunAccount) -> RunAccount:
    """Returns what a list shows of an account. Nothing in it allows an action."""
    glance, info = account.glance, account.info
    if glance is not None:
        losses = [None if loss is None else float(f"{loss:.{_DIGITS}g}") for loss in glance.losses]
        glance = replace(glance, losses=tuple(losses))
    if info is not None:
        info = RunInfo(
            id=info.id,
            created_at=info.created_at,
            strategy=info.strategy,
            worker_count=info.worker_count,
            replica_count=info.replica_count,
            total_steps=info.total_steps,
        )
    return replace(
        account,
        info=info,
        glance=glance,
        reason="",
        trainer_answers=False,
        workers=() if account.chief is None else (account.chief,),
        supervisor=None,
        alerts=tuple(Alert(one.kind, one.title, "", Advice(())) for one in account.alerts),
        stop=None,
        failure=None,
        problems=(),
        processes=(),
    )


def _recalled(stored: _StoredRun, above: str) -> RememberedRun | None:
    """Returns a remembered run; None for what cannot be shown."""
    root = stored.account.get("root")
    if not isinstance(root, str) or not _is_below(root, above):
        return None
    try:
        values = {**_cleaned(stored.account), "root": root}
        account = msgspec.convert(values, RunAccount, dec_hook=_as_path)
    except (ValueError, RecursionError):
        return None
    return RememberedRun(account, tuple(stored.signs), stored.looked_at)


def _is_below(root: str, above: str) -> bool:
    return root.startswith(above) and root == os.path.normpath(root) and "\0" not in root


def _cleaned(value: Any) -> Any:
    """Returns a value with all its texts safe to show."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {key: _cleaned(one) if one else one for key, one in value.items()}
    if isinstance(value, list):
        # Thousands of them are numbers.
        return [one if isinstance(one, float) else _cleaned(one) for one in value]
    return value


def _as_builtins(account: RunAccount) -> dict[str, Any]:
    """Returns the fields of an account that differ from their defaults: a tenth of all."""
    values: dict[str, Any] = msgspec.to_builtins(_without_defaults(account), enc_hook=str)
    return values


def _without_defaults(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        fields = _defaults_of(type(value)).items()
        found = ((name, getattr(value, name), default) for name, default in fields)
        return {name: _without_defaults(one) for name, one, default in found if one != default}
    if isinstance(value, tuple | list):
        return [_without_defaults(one) for one in value]
    return value


@cache
def _defaults_of(kind: type[msgspec.Struct]) -> Mapping[str, Any]:
    """Returns the defaults of the fields of a record by name; of one that is required, a mark."""
    return {
        field.name: field.default if field.default_factory is NODEFAULT else field.default_factory()
        for field in msgspec.structs.fields(kind)
    }


def _as_path(kind: type, value: Any) -> Any:
    if kind is not Path or not isinstance(value, str):
        raise ValueError(f"{kind.__name__} is not remembered")
    return Path(value)


def _is_text(path: Path) -> bool:
    """Whether JSON can hold a path."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True
