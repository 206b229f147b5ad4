"""Diagnostics of a checkpoint directory, beyond the state of each checkpoint.

`diagnostics` is a pure function of one observation. What a message says about TensorFlow was
tested with TensorFlow 2.21 (`latest_checkpoint`, `CheckpointManager`). Advice is safe even if the
observation was stale or partial: a file that could belong to any known format is never called a
leftover, and leftovers are moved, not deleted.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Literal

from tfckpt_trainer.bundle.links import Link, LinkEnd
from tfckpt_trainer.bundle.state_file import StateFileCondition
from tfckpt_trainer.catalog.directory.checkpoint_files import owner_of
from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState, is_derived
from tfckpt_trainer.catalog.directory.listing import FileFact
from tfckpt_trainer.catalog.directory.save_directories import TEMPORARY
from tfckpt_trainer.catalog.directory.saved_model import VARIABLES
from tfckpt_trainer.catalog.directory.symbolic_links import file_names, shorten_target
from tfckpt_trainer.catalog.scan.diagnostics_state_file import StateFileDiagnostics
from tfckpt_trainer.catalog.scan.observation import (
    Diagnostic,
    Observation,
)
from tfckpt_trainer.catalog.scan.order import find_order_doubt
from tfckpt_trainer.catalog.scan.states import CLOCK_SLACK_SECONDS, QUIET_SECONDS
from tfckpt_trainer.rundir.paths import parse_checkpoint_name
from tfckpt_trainer.words.advice import Advice, command_or_key, only_command
from tfckpt_trainer.words.counts import count, join_names

PRUNE_DAMAGED = "prune-damaged"
"""Kind of the diagnostic of a prune in the trash that cannot be brought back."""

_STATE_TEMPORARY = re.compile(r"checkpoint\.tmp[0-9a-f]+")
_PART_TEMPORARY = re.compile(r".*\.tempstate\d+", re.DOTALL)
_CHECKPOINT_PART = re.compile(r"\.(index|meta|data-\d+-of-\d+)$")


def diagnostics(
    observed: Observation, now: float, quiet_seconds: float = QUIET_SECONDS
) -> tuple[Diagnostic, ...]:
    """Returns the diagnostics, warnings first.

    Args:
        observed: One observation of the directory.
        now: Seconds since the epoch.
        quiet_seconds: Seconds without a change after which no save is under way.
    """
    before = now - quiet_seconds
    entries = [
        *StateFileDiagnostics(observed, now, quiet_seconds).find(),
        *_newer(observed),
        *_saved_model(observed),
        *_links(observed),
        *_two_prefixes(observed),
        *_same_step(observed),
        *_order(observed),
        *_data_newer_than_index(observed),
        *_version_one(observed),
        *_unlisted(observed, before),
        *_extra_data(observed, before),
        *_leftover_directories(observed, before),
        *_unowned_files(observed, before),
        *_cut_copies(observed, before),
        *_damaged_prunes(observed),
        *_neighbours(observed),
    ]
    return tuple(sorted(entries, key=lambda diagnostic: diagnostic.severity == "note"))


def describe_newer(newer: Sequence[str]) -> str:
    """Returns what documents of a newer release prevent.

    Args:
        newer: For each of them, which release is needed.
    """
    more = f" So were {len(newer) - 1:,} more." if len(newer) > 1 else ""
    return f"{newer[0]}{more} Until then, commands that change the run are refused."


def _newer(observed: Observation) -> Iterator[Diagnostic]:
    if observed.newer:
        name, message = observed.newer[0].partition(" ")[0], describe_newer(observed.newer)
        yield Diagnostic("newer", "warning", name, message)


def _saved_model(observed: Observation) -> Iterator[Diagnostic]:
    if observed.is_saved_model:
        message = (
            f"These are the variables of the SavedModel {os.path.dirname(observed.directory)}. It "
            "cannot be loaded without them. No training continues from them."
        )
        yield Diagnostic("saved-model", "note", VARIABLES, message)


def _links(observed: Observation) -> Iterator[Diagnostic]:
    by_end: dict[LinkEnd, list[Link]] = {}
    for checkpoint in observed.checkpoints:
        for link in checkpoint.links:
            by_end.setdefault(link.end, []).append(link)
    outside = by_end.pop(LinkEnd.OUTSIDE, [])
    elsewhere = by_end.pop(LinkEnd.ELSEWHERE, [])
    by_end.pop(LinkEnd.FILE, None)
    dead = sorted(link for links in by_end.values() for link in links)
    if dead:
        message = (
            f"Symbolic links that lead to no file: {_link_words(dead)}. Their checkpoints cannot "
            "be restored. If the files will not come back, remove the link: "
            f"`cd {shlex.quote(observed.directory)} && rm {file_names([dead[0].name])}`."
        )
        yield Diagnostic("link-dead", "warning", dead[0].name, message)
    if outside:
        message = (
            f"Symbolic links that lead out of this directory: {_link_words(outside)}. TensorFlow "
            "follows them, and this program does not. It neither reads nor prunes their "
            "checkpoints."
        )
        yield Diagnostic("link-outside", "note", outside[0].name, message)
    if elsewhere:
        message = (
            f"Symbolic links to files of another directory: {_link_words(elsewhere)}. Their "
            "checkpoints are read, and no command moves or deletes them."
        )
        yield Diagnostic("link-elsewhere", "note", elsewhere[0].name, message)


def _link_words(links: list[Link]) -> str:
    return join_names([f"{link.name} -> {shorten_target(link.target)}" for link in links])


def _two_prefixes(observed: Observation) -> Iterator[Diagnostic]:
    """Two checkpoint managers in one directory overwrite each other's state file."""
    if observed.condition is StateFileCondition.MISSING:
        return
    first: dict[str, str] = {}
    for checkpoint in observed.checkpoints:
        if not checkpoint.restorable or is_derived(checkpoint):
            continue
        parsed = parse_checkpoint_name(checkpoint.name)
        if parsed is not None:
            first.setdefault(parsed.prefix, checkpoint.name)
    if len(first) > 1:
        message = (
            f"{join_names(list(first.values()))} have {len(first)} prefixes. Managers that share "
            "one state file (`checkpoint`) take over the checkpoints of each other when they "
            "start here, and delete them in time. At the next start, let one of them save to "
            "another directory, and copy its newest checkpoint there first. Leave the files that "
            "are here."
        )
        yield Diagnostic("two-prefixes", "warning", next(iter(first.values())), message)


def _same_step(observed: Observation) -> Iterator[Diagnostic]:
    by_step: dict[tuple[int, int], list[str]] = {}
    for checkpoint in observed.restorable:
        if checkpoint.step is not None and not is_derived(checkpoint):
            by_step.setdefault((checkpoint.branch, checkpoint.step), []).append(checkpoint.name)
    several = {place: names for place, names in by_step.items() if len(names) > 1}
    if several:
        (_, step), names = next(iter(several.items()))
        rest = len(several) - 1
        more = (
            f", and {rest} more step{'s have' if rest > 1 else ' has'} several too" if rest else ""
        )
        message = (
            f"{join_names(names)} all have step {step}{more}. To restore one, use its name instead "
            "of the step."
        )
        compare = command_or_key("compare", "compare", observed.directory, *names[:2])
        advice = Advice.of(
            "To see whether they differ, run {compare}.",
            "To see whether they differ, mark them and use {compare}.",
            compare=compare,
        )
        yield Diagnostic("same-step", "note", names[0], message, advice=advice)


def _order(observed: Observation) -> Iterator[Diagnostic]:
    doubt = find_order_doubt(observed.checkpoints)
    if doubt is not None:
        pin = command_or_key("pin", "pin", observed.directory, doubt.later.name)
        advice = Advice.of(
            "{reservation}, keep it from prunes with {pin}.", reservation=doubt.reservation, pin=pin
        )
        is_known = observed.condition is StateFileCondition.GOOD
        severity: Literal["warning", "note"] = "note" if is_known else "warning"
        yield Diagnostic("order-by-step", severity, doubt.later.name, doubt.words, advice=advice)


def _data_newer_than_index(observed: Observation) -> Iterator[Diagnostic]:
    """TensorFlow writes the index last, but a copy may change the order of the times."""
    mixed = []
    for checkpoint in observed.checkpoints:
        if checkpoint.state is not CheckpointState.COMPLETE or checkpoint.links:
            continue
        files = observed.files.get(checkpoint.name)
        index_at = files.index_at if files is not None else None
        if files is None or index_at is None:
            continue
        if files.data_at > index_at + CLOCK_SLACK_SECONDS:
            mixed.append(checkpoint.name)
    if mixed:
        message = (
            f"The data of {join_names(mixed)} is newer than the index. Either it was copied, or "
            "it belongs to another save, which TensorFlow notices only during a restore."
        )
        verify = command_or_key("verify", "verify", observed.directory, mixed[0])
        advice = Advice.of("Verify it with {verify}.", verify=verify)
        yield Diagnostic("data-newer", "warning", mixed[0], message, advice=advice)


def _version_one(observed: Observation) -> Iterator[Diagnostic]:
    if not observed.version_one:
        return
    first = observed.version_one[0]
    names = join_names([checkpoint.name for checkpoint in observed.version_one])
    be = "are" if len(observed.version_one) > 1 else "is"
    message = (
        f"{names} {be} in TensorFlow's V1 format. This program lists them, and does "
        f"not read, verify, restore or prune them. Keep their files: {join_names(first.files)}. "
        "To convert one, load it in TensorFlow with "
        "`saver = tf.compat.v1.train.import_meta_graph(...)` and "
        f"`saver.restore(session, {observed.directory + '/' + first.path!r})`, and save it in the "
        "V2 format with `tf.compat.v1.train.Saver().save(session, ...)` into another directory."
    )
    yield Diagnostic("v1-format", "note", first.name, message)


def _unlisted(observed: Observation, before: float) -> Iterator[Diagnostic]:
    if observed.state is None:
        return
    # The newest may be part of a save that has not written the state file yet.
    unlisted = [
        c
        for c in observed.restorable[1:]
        if not c.listed and c.packed is None and c.saved_at <= before
    ]
    if unlisted:
        message = (
            f"{join_names([c.name for c in unlisted])} can be restored, but the state file does "
            "not list them. A manager kept them permanently (keep_checkpoint_every_n_hours) or "
            "lost track of them, or another one saved them. No manager deletes them."
        )
        prune = command_or_key("prune", "prune", observed.directory, "NAME")
        advice = Advice.of(
            "To move one to the trash, run {prune}.",
            "To move one to the trash, mark it and use {prune}.",
            prune=prune,
        )
        size = sum(checkpoint.size for checkpoint in unlisted)
        yield Diagnostic("unlisted", "note", unlisted[0].name, message, size, advice)


def _extra_data(observed: Observation, before: float) -> Iterator[Diagnostic]:
    for checkpoint in observed.restorable:
        files = observed.files.get(checkpoint.name)
        if files is None or files.shard_counts <= {checkpoint.shards}:
            # The usual case: the facts of its files are not needed.
            continue
        index = files.index
        if index is None:
            continue
        extra = files.shards_of_other_counts(checkpoint.shards)
        if not extra or any(fact.modified_at > before for fact in extra):
            continue
        names = [fact.name for fact in extra]
        what = (
            f"{join_names(names)} {_do(names)} not belong to {checkpoint.name}, which has "
            f"{count(checkpoint.shards, 'data file')}"
        )
        # Data is written before its index: newer data may be part of a save that goes on.
        if any(fact.modified_at > index.modified_at - CLOCK_SLACK_SECONDS for fact in extra):
            advice = "They are as new as its index: a save or a copy may be under way. Keep them."
        else:
            advice = (
                "An earlier save of that name with another number of data files was cut off. "
                f"{_move_advice(observed, names)}"
            )
        size = sum(fact.size for fact in extra)
        yield Diagnostic("extra-data", "note", names[0], f"{what}. {advice}", size)


def _leftover_directories(observed: Observation, before: float) -> Iterator[Diagnostic]:
    for checkpoint in observed.restorable:
        files = observed.files.get(checkpoint.name)
        if files is None or files.temporary_at is None or files.temporary_at > before:
            continue
        name, index = f"{checkpoint.name}{TEMPORARY}", files.index
        is_newer = (
            files.part_at is not None and index is not None and files.part_at > index.modified_at
        )
        if checkpoint.name not in observed.proven_temporaries:
            message = (
                f"{name} has files with the names of parts of a save. Nothing shows that "
                f"TensorFlow wrote them. A prune of {checkpoint.name} leaves them."
            )
        elif is_newer:
            message = (
                f"{name} has parts of a later save of {checkpoint.name}, which was cut off. The "
                "parts may be complete. Keep it until a newer checkpoint is saved."
            )
        else:
            message = (
                f"{name} is left from a killed save. {checkpoint.name} does not need it, and "
                f"TensorFlow never removes it. {_move_advice(observed, [name])}"
            )
        size = observed.temporary_bytes.get(checkpoint.name, 0)
        yield Diagnostic("leftover-temp", "note", name, message, size)


def _unowned_files(observed: Observation, before: float) -> Iterator[Diagnostic]:
    v1_files = {name for checkpoint in observed.version_one for name in checkpoint.files}
    facts = [
        fact
        for name, fact in sorted(observed.unowned.items())
        if name not in v1_files and fact.modified_at <= before
    ]
    state_files = [fact for fact in facts if _STATE_TEMPORARY.fullmatch(fact.name)]
    parts = [
        fact
        for fact in facts
        if _PART_TEMPORARY.fullmatch(fact.name) and not _is_of_cache(observed.directory, fact.name)
    ]
    others = [fact for fact in facts if _CHECKPOINT_PART.search(fact.name)]
    if state_files:
        yield _state_temporaries(observed, state_files)
    if parts:
        names = [fact.name for fact in parts]
        message = (
            f"{join_names(names)} {_are(names)} left from killed saves. TensorFlow does not read "
            f"such files. {_move_advice(observed, names)}"
        )
        yield Diagnostic("part-temp", "note", names[0], message, _size(parts))
    names = [
        *observed.neighbours.misnamed,
        *observed.other_directories,
        *(fact.name for fact in others),
    ]
    if names:
        kind = "are not checkpoints" if len(names) > 1 else "is not a checkpoint"
        message = (
            f"{join_names(names)} {kind}: all commands leave {_them(names)} alone. Keep "
            f"{_them(names)}, unless you know which program wrote {_them(names)}. A renamed part "
            "of a checkpoint needs its name back."
        )
        yield Diagnostic("stray", "note", names[0], message, _size(others))


def _is_of_cache(directory: str, name: str) -> bool:
    """Whether a part has the lock file beside it with which tf.data writes a cache."""
    prefix = owner_of(name.rpartition(".tempstate")[0])
    return os.path.lexists(os.path.join(directory, f"{prefix}.lockfile"))


def _damaged_prunes(observed: Observation) -> Iterator[Diagnostic]:
    for prune, message in observed.damaged_prunes.items():
        yield Diagnostic(PRUNE_DAMAGED, "warning", prune, message)


def _cut_copies(observed: Observation, before: float) -> Iterator[Diagnostic]:
    left = [copy for copy in observed.arriving if copy.changed_at <= before]
    if left:
        message = (
            f"A copy of {join_names([copy.name for copy in left])} to this directory was cut off. "
            "The same `copy` goes on where it ended. To abandon it, delete what has arrived: "
            f"`rm -r {shlex.join([copy.path for copy in left])}`."
        )
        size = sum(copy.bytes for copy in left)
        yield Diagnostic("copy-cut-off", "note", left[0].name, message, size)


def _neighbours(observed: Observation) -> Iterator[Diagnostic]:
    below = observed.neighbours.below
    if below:
        message = f"Checkpoints of subdirectories are not listed: {join_names(below)}."
        place = os.path.join(observed.directory, below[0])
        yield Diagnostic(
            "below", "note", below[0], message, advice=only_command("List them with ", "ls", place)
        )


def _state_temporaries(observed: Observation, facts: list[FileFact]) -> Diagnostic:
    names = [fact.name for fact in facts]
    what = (
        f"{join_names(names)} {_are(names)} left from saves that were killed while they wrote the "
        "state file"
    )
    if observed.condition is StateFileCondition.GOOD:
        advice = f"No program reads them. {_move_advice(observed, names)}"
    else:
        advice = (
            f"The state file is {observed.condition}, and one of them may have its old content. "
            "Keep them until the state file is repaired."
        )
    return Diagnostic("state-file-temp", "note", names[0], f"{what}. {advice}", _size(facts))


def _move_advice(observed: Observation, names: list[str]) -> str:
    where = " on the machine that trains" if observed.is_network else ""
    return f"If no trainer runs, move {_them(names)} away{where}: {observed.move_command(names)}."


def _them(names: list[str]) -> str:
    return "them" if len(names) > 1 else "it"


def _are(names: list[str]) -> str:
    return "are" if len(names) > 1 else "is"


def _do(names: list[str]) -> str:
    return "do" if len(names) > 1 else "does"


def _size(facts: list[FileFact]) -> int:
    return sum(fact.size for fact in facts)


__all__ = ["Diagnostic", "diagnostics"]
