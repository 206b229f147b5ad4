"""Diagnostics of a checkpoint directory, beyond the state of each checkpoint.

`diagnostics` is a pure function of one look. What it says TensorFlow would do was tried with
TensorFlow 2.21 (`latest_checkpoint`, `CheckpointManager`). Advice loses nothing where the look
was stale or incomplete: a file that any known format could own is never called garbage, and what
is garbage is moved aside and not deleted.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from tfckpt_trainer.bundle.links import Link, LinkEnd
from tfckpt_trainer.catalog.scan.checkpoints import CheckpointState
from tfckpt_trainer.catalog.scan.diagnostics_state_file import StateFileDiagnostics
from tfckpt_trainer.catalog.scan.directory_listing import FileFact
from tfckpt_trainer.catalog.scan.linked import file_names, shown
from tfckpt_trainer.catalog.scan.seen import Condition, Diagnostic, Lookup, Seen, look_up, these
from tfckpt_trainer.catalog.scan.states import CLOCK_SLACK_SECONDS, QUIET_SECONDS
from tfckpt_trainer.rundir.paths import parse_checkpoint_name

_STATE_TEMPORARY = re.compile(r"checkpoint\.tmp[0-9a-f]+")
_PART_TEMPORARY = re.compile(r".*\.tempstate\d+", re.DOTALL)
_OF_A_SAVE = re.compile(r"\.(index|meta|data-\d+-of-\d+)$")


def diagnostics(
    seen: Seen, now: float, quiet_seconds: float = QUIET_SECONDS
) -> tuple[Diagnostic, ...]:
    """Returns the diagnostics, the most important first.

    Args:
        seen: One look at the directory.
        now: Seconds since the epoch.
        quiet_seconds: After so long without a change nobody writes any more.
    """
    before = now - quiet_seconds
    found = [
        *StateFileDiagnostics(seen, now, quiet_seconds).find(),
        *_of_links(seen),
        *_of_two_prefixes(seen),
        *_of_one_step(seen),
        *_of_mixtures(seen),
        *_of_version_one(seen),
        *_of_the_unlisted(seen, before),
        *_of_extra_data(seen, before),
        *_of_temporaries(seen, before),
        *_of_strays(seen, before),
    ]
    return tuple(sorted(found, key=lambda diagnostic: diagnostic.severity == "note"))


def _of_links(seen: Seen) -> Iterator[Diagnostic]:
    by_end: dict[LinkEnd, list[Link]] = {}
    for checkpoint in seen.checkpoints:
        for link in checkpoint.links:
            by_end.setdefault(link.end, []).append(link)
    outside = by_end.pop(LinkEnd.OUTSIDE, [])
    by_end.pop(LinkEnd.FILE, None)
    dead = sorted(link for links in by_end.values() for link in links)
    if dead:
        message = (
            f"Symbolic links that lead to no file: {_shown_links(dead)}. Their checkpoints cannot "
            "be restored. If the files will not come back, remove the link: "
            f"`cd {shlex.quote(seen.directory)} && rm {file_names([dead[0].name])}`."
        )
        yield Diagnostic("link-dead", "warning", dead[0].name, message)
    if outside:
        message = (
            f"Symbolic links that lead out of this directory: {_shown_links(outside)}. TensorFlow "
            "follows them, and this program does not. It neither reads nor prunes their "
            "checkpoints."
        )
        yield Diagnostic("link-outside", "note", outside[0].name, message)


def _shown_links(links: list[Link]) -> str:
    return these([f"{link.name} -> {shown(link.target)}" for link in links])


def _of_two_prefixes(seen: Seen) -> Iterator[Diagnostic]:
    """Two managers on one directory share its state file, and lose what the other saved."""
    if seen.condition is Condition.MISSING:
        return
    first: dict[str, str] = {}
    for checkpoint in seen.checkpoints:
        said = parse_checkpoint_name(checkpoint.name)
        if said is not None and checkpoint.restorable:
            first.setdefault(said.prefix, checkpoint.name)
    if len(first) > 1:
        message = (
            f"{these(list(first.values()))} have {len(first)} prefixes and one state file: a "
            "manager that starts here takes for its own what the other listed last, and deletes "
            "it in time. At the next start, let one of them save into another directory, and copy "
            "its newest checkpoint there first. Leave the files that are here."
        )
        yield Diagnostic("two-prefixes", "warning", next(iter(first.values())), message)


def _of_one_step(seen: Seen) -> Iterator[Diagnostic]:
    by_step: dict[tuple[int, int], list[str]] = {}
    for checkpoint in seen.restorable:
        if checkpoint.step is not None:
            by_step.setdefault((checkpoint.branch, checkpoint.step), []).append(checkpoint.name)
    doubled = {place: names for place, names in by_step.items() if len(names) > 1}
    if doubled:
        (_, step), names = next(iter(doubled.items()))
        rest = len(doubled) - 1
        more = (
            f", and {rest} more step{'s have' if rest > 1 else ' has'} several too" if rest else ""
        )
        message = (
            f"{these(names)} are all of step {step}{more}. Name the checkpoint, not the step, to "
            "restore one; compare them to see whether they differ."
        )
        yield Diagnostic("same-step", "note", names[0], message)


def _of_mixtures(seen: Seen) -> Iterator[Diagnostic]:
    """TensorFlow writes the index last; a copy may have turned the times round."""
    mixed = []
    for checkpoint in seen.checkpoints:
        files = seen.files.get(checkpoint.name)
        index = files.index if files is not None else None
        if checkpoint.state is not CheckpointState.COMPLETE or checkpoint.links:
            continue
        if files is not None and index is not None:
            latest = index.modified_at + CLOCK_SLACK_SECONDS
            if any(fact.modified_at > latest for fact in files.shards.values()):
                mixed.append(checkpoint.name)
    if mixed:
        message = (
            f"The data of {these(mixed)} is newer than the index: it was copied, or it is of "
            "another save, which TensorFlow finds out only while it restores. Verify it."
        )
        yield Diagnostic("data-newer", "warning", mixed[0], message)


def _of_version_one(seen: Seen) -> Iterator[Diagnostic]:
    if not seen.version_one:
        return
    first = seen.version_one[0]
    names = these([one.name for one in seen.version_one])
    be = "are" if len(seen.version_one) > 1 else "is"
    message = (
        f"{names} {be} in TensorFlow's V1 format. This program does not read that format: it does "
        f"not list, verify, restore or prune them. Keep their files: {these(first.files)}. To "
        "convert one, load it in TensorFlow with "
        "`saver = tf.compat.v1.train.import_meta_graph(...)` and "
        f"`saver.restore(session, {seen.directory + '/' + first.path!r})`, and save it in the V2 "
        "format with `tf.compat.v1.train.Saver().save(session, ...)` into another directory."
    )
    yield Diagnostic("v1-format", "note", first.name, message)


def _of_the_unlisted(seen: Seen, before: float) -> Iterator[Diagnostic]:
    if seen.state is None:
        return
    # The newest may be of a save that has yet to write the state file.
    unlisted = [
        c for c in seen.restorable[1:] if not c.listed and c.record is None and c.saved_at <= before
    ]
    if unlisted:
        message = (
            f"{these([c.name for c in unlisted])} can be restored and the state file does not "
            "list them: a manager kept them for good (keep_checkpoint_every_n_hours), or forgot "
            "them, or another one saved them. No manager deletes them. To move one to the trash: "
            f" `tfckpt-tui prune {shlex.quote(seen.directory)} NAME`."
        )
        size = sum(checkpoint.size for checkpoint in unlisted)
        yield Diagnostic("unlisted", "note", unlisted[0].name, message, size)


def _of_extra_data(seen: Seen, before: float) -> Iterator[Diagnostic]:
    for checkpoint in seen.restorable:
        files = seen.files.get(checkpoint.name)
        index = files.index if files is not None else None
        if files is None or index is None:
            continue
        extra = [f for (_, count), f in files.shards.items() if count != checkpoint.shards]
        if not extra or any(fact.modified_at > before for fact in extra):
            continue
        names = [fact.name for fact in extra]
        said = (
            f"{these(names)} are not of {checkpoint.name}, which has {checkpoint.shards} data "
            f"file{'' if checkpoint.shards == 1 else 's'}"
        )
        # Data comes before its index: what is newer may be of a save of which that is to come.
        if any(fact.modified_at > index.modified_at - CLOCK_SLACK_SECONDS for fact in extra):
            cure = "They are as new as its index: a save or a copy may be under way. Keep them."
        else:
            cure = (
                "An earlier save of that name in other parts was cut off. "
                f"{_moving_away(seen, names)}"
            )
        size = sum(fact.size for fact in extra)
        yield Diagnostic("extra-data", "note", names[0], f"{said}. {cure}", size)


def _of_temporaries(seen: Seen, before: float) -> Iterator[Diagnostic]:
    for checkpoint in seen.restorable:
        files = seen.files.get(checkpoint.name)
        if files is None or files.temporary_at is None or files.temporary_at > before:
            continue
        name, index = f"{checkpoint.name}_temp", files.index
        is_newer = (
            files.part_at is not None and index is not None and files.part_at > index.modified_at
        )
        if is_newer:
            cure = (
                f"has parts of a later save of {checkpoint.name}, which was cut off. The parts may "
                "be complete. Keep it until a newer checkpoint is saved."
            )
        else:
            cure = (
                f"is left of a save that was killed; {checkpoint.name} does not need it, and "
                f"TensorFlow never removes it. {_moving_away(seen, [name])}"
            )
        size = seen.temporary_bytes.get(checkpoint.name, 0)
        yield Diagnostic("leftover-temp", "note", name, f"{name} {cure}", size)


def _of_strays(seen: Seen, before: float) -> Iterator[Diagnostic]:
    known = {name for one in seen.version_one for name in one.files}
    facts = [
        fact
        for name, fact in sorted(seen.strays.items())
        if name not in known and fact.modified_at <= before
    ]
    lists = [fact for fact in facts if _STATE_TEMPORARY.fullmatch(fact.name)]
    parts = [fact for fact in facts if _PART_TEMPORARY.fullmatch(fact.name)]
    others = [fact for fact in facts if _OF_A_SAVE.search(fact.name)]
    if lists:
        yield _of_state_temporaries(seen, lists)
    if parts:
        names = [fact.name for fact in parts]
        message = (
            f"{these(names)} {_are(names)} left of saves that were killed, and TensorFlow reads "
            f"no such file. {_moving_away(seen, names)}"
        )
        yield Diagnostic("part-temp", "note", names[0], message, _size(parts))
    if others:
        names = [fact.name for fact in others]
        message = (
            f"{these(names)} {_are(names)} named like parts of a checkpoint, and no checkpoint "
            "here has such a part. Its other files may be elsewhere, or another program may have "
            "written it. Keep them, unless you know what wrote them."
        )
        yield Diagnostic("stray", "note", names[0], message, _size(others))


def _of_state_temporaries(seen: Seen, facts: list[FileFact]) -> Diagnostic:
    names = [fact.name for fact in facts]
    said = (
        f"{these(names)} {_are(names)} left of saves that were killed while they wrote the state "
        "file"
    )
    if seen.condition is Condition.GOOD:
        cure = f"Nothing reads them. {_moving_away(seen, names)}"
    else:
        cure = (
            f"The state file is {seen.condition}, and one of them may hold the list that it had. "
            "Keep them until the state file is repaired."
        )
    return Diagnostic("state-file-temp", "note", names[0], f"{said}. {cure}", _size(facts))


def _moving_away(seen: Seen, names: list[str]) -> str:
    """Returns how to be rid of garbage, so that a mistake can be undone."""
    where = " on the machine that trains" if seen.is_network else ""
    said = f"If no trainer runs, move them away{where}: {seen.moving_away(names)}."
    return said if len(names) > 1 else said.replace("them", "it", 1)


def _are(names: list[str]) -> str:
    return "are" if len(names) > 1 else "is"


def _size(facts: list[FileFact]) -> int:
    return sum(fact.size for fact in facts)


__all__ = ["Condition", "Diagnostic", "Lookup", "Seen", "diagnostics", "look_up"]
