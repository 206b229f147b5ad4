"""The commands `verify` and `bisect`: options, output and exit codes."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from functools import partial

import click
from msgspec.structs import replace

from tfckpt_trainer.bundle.analysis.finite import NonFiniteValues
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.scan.states import CheckpointEvidence, state_for_fault
from tfckpt_trainer.catalog.verification.bisect import Bisection, Probe, ProbeOutcome
from tfckpt_trainer.catalog.verification.bisect import bisect as halve
from tfckpt_trainer.catalog.verification.damaged_documents import head_findings
from tfckpt_trainer.catalog.verification.verify_checkpoint import (
    Verified,
    fault_of,
)
from tfckpt_trainer.errors import ExitCode, RefusedError, TfckptError, UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import FoundFault
from tfckpt_trainer.scripts.exit_statuses import exit_words, is_of_signal
from tfckpt_tui.cli.checkpoints.other_files import verify_files
from tfckpt_tui.cli.completion.checkpoint_names import CHECKPOINT, CHECKPOINT_OR_FILE
from tfckpt_tui.cli.main import RunArgument, on_open_run, prints
from tfckpt_tui.cli.output import ReadProgress, print_json, print_line, print_message
from tfckpt_tui.formats import units
from tfckpt_tui.formats.checkpoint_columns import metric_text
from tfckpt_tui.formats.checkpoint_filter import Filter, parse_complete_filter
from tfckpt_tui.reports.verification import (
    BisectReport,
    NotFiniteTensor,
    Skipped,
    VerifiedCheckpoint,
    VerifyFinding,
    VerifyReport,
)
from tfckpt_tui.services.checkpoints.choose import checkpoints_to_bisect
from tfckpt_tui.services.checkpoints.look_up import list_checkpoints, look_up_all
from tfckpt_tui.services.checkpoints.tensor_files import find_file
from tfckpt_tui.services.checkpoints.verify import (
    Verifier,
    cached_results,
    can_be_verified,
    valid_result,
)
from tfckpt_tui.services.processes.parallel_map import parallel_map, usable_cores
from tfckpt_tui.services.runs.listing import list_with_diagnostics

_UNSUPPORTED = "It is in TensorFlow's V1 format, which is not supported."

_SHOWN = 20
"""How many findings of one checkpoint are printed; JSON has all."""

_WORTH_A_RATE = 10_000_000
"""Bytes below which no rate is printed."""

_MANY = 256
"""Small checkpoints from which on it takes less time to read them on all cores."""

_STORED_TOGETHER = 1000
"""Results that are lost at most if the command is killed."""

_SKIP = 125
"""Exit status of a check that cannot tell, as in `git bisect run`."""

_LAST_STATUS = 127
"""Above it, a shell reports a signal: the check did not exit by itself."""


@click.command()
@RunArgument
@click.argument("names", type=CHECKPOINT_OR_FILE, nargs=-1, metavar="[CKPT]...")
@click.option("--finite", is_flag=True, help="Look for NaN and infinite values.")
@click.option("--strict", is_flag=True, help="Exit 1 for warnings too.")
@click.option("--again", is_flag=True, help="Verify again, even if a stored result is valid.")
@prints(VerifyReport)
@on_open_run
def verify(
    run: RunDirectory,
    names: tuple[str, ...],
    finite: bool,
    strict: bool,
    again: bool,
    as_json: bool,
) -> int:
    """Read checkpoints and compare every byte with its checksum; all checkpoints by default.

    CKPT is a name or a step, or a file of Keras or safetensors. Without CKPT, such files and the
    record of the last restore are checked too. Exits 1 if a checkpoint or a file is damaged, or if
    a CKPT cannot be read yet. A checkpoint whose record is lost is inexact: it restores, but not
    exactly. With --strict, that exits 1 too.
    """
    contents = None if names else list_with_diagnostics(run, opens_usual=False)
    named = [file for file in map(partial(find_file, run), names) if file is not None]
    others = (
        named
        if contents is None
        else [other_file for other_file in contents.other_files if other_file.is_readable]
    )
    checkpoints = [name for name in names if name not in {file.name for file in named}]
    chosen = list(contents.checkpoints) if contents else look_up_all(run, checkpoints)
    unsupported = contents.version_one if contents is not None else ()
    passed_over = [checkpoint for checkpoint in chosen if not can_be_verified(checkpoint)]
    only = frozenset(checkpoint.name for checkpoint in chosen) if names else None
    stored: dict[str, Verified] = {}
    if not (finite or again):
        evidence = contents.evidence if contents is not None else None
        stored = _stored_results(run, chosen, evidence)
    verifier = Verifier(run, only=only, finite=finite, threads=usable_cores())
    unread = [one for one in chosen if one not in passed_over and one.name not in stored]
    results = []
    with closing(_read_all(verifier, unread)) as read:
        for checkpoint in chosen:
            if checkpoint in passed_over:
                continue
            verified = stored.get(checkpoint.name) or next(read)
            if isinstance(verified, Checkpoint):
                passed_over.append(verified)
                continue
            results.append(verified)
            if not as_json:
                _print_verified(verified, checkpoint.size)
    of_run = [] if names else [fault_of(finding) for finding in head_findings(run)]
    verdicts = verify_files(run, others, finite=finite, show=not as_json)
    if as_json:
        skipped = [Skipped(checkpoint.name, checkpoint.problem) for checkpoint in passed_over]
        skipped += [Skipped(old.name, _UNSUPPORTED) for old in unsupported]
        print_json(
            VerifyReport(
                checkpoints=tuple(map(_verified_report, results)),
                files=tuple(verdicts.files),
                skipped=(*skipped, *verdicts.skipped),
                findings=tuple(map(_finding_report, of_run)),
            )
        )
    else:
        for finding in of_run:
            print_line(f"{finding.severity}: {finding.message}")
        _print_summary(results, passed_over, verdicts.states)
        for old in unsupported:
            print_message(f"{old.name} was skipped ({_UNSUPPORTED})")
        for file in verdicts.skipped:
            print_message(f"{file.name} was skipped: {file.reason}")
    unanswered = bool(names and (passed_over or verdicts.skipped))
    done = all(result.ok for result in results) and verdicts.ok and not unanswered
    if strict:
        done = done and not of_run and not any(result.record.findings for result in results)
    return int(ExitCode.DONE if done else ExitCode.PROBLEM)


@click.command(context_settings={"ignore_unknown_options": False})
@RunArgument
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.option(
    "--finite", is_flag=True, help="Find the first checkpoint with NaN or infinite values."
)
@click.option(
    "--bad",
    type=parse_complete_filter,
    default="",
    metavar="WORDS",
    help="Find the first checkpoint that matches a filter, as in 'accuracy<0.9'.",
)
@click.option(
    "--from",
    "first",
    type=CHECKPOINT,
    metavar="CKPT",
    help="First checkpoint; the oldest by default.",
)
@click.option(
    "--to",
    "last",
    type=CHECKPOINT,
    metavar="CKPT",
    help="Last checkpoint; the current one by default.",
)
@prints(BisectReport)
@on_open_run
def bisect(
    run: RunDirectory,
    command: tuple[str, ...],
    finite: bool,
    bad: Filter,
    first: str | None,
    last: str | None,
    as_json: bool,
) -> int:
    """Find the first checkpoint for which a check fails, by bisection.

    The check is --finite, --bad, or COMMAND with the path of a checkpoint as its last argument.
    Exit status 0 means good, 125 undecided, any other up to 127 bad. Damaged checkpoints are not
    checked, nor those without a metric that --bad compares. Exits 1 if a bad checkpoint was found,
    or if none could be checked.
    """
    if [finite, bool(bad.tests), bool(command)].count(True) != 1:
        raise click.UsageError("Give one of --finite, --bad and -- COMMAND.")
    row = checkpoints_to_bisect(list_checkpoints(run), first, last)
    names = [checkpoint.name for checkpoint in row]
    if not as_json:
        print_line(f"{units.count(len(row), 'checkpoint')} from {names[0]} to {names[-1]}")
    broken = {checkpoint.name: checkpoint for checkpoint in row if not checkpoint.restorable}
    if finite:
        check = _finite_check(run)
    elif bad.tests:
        check = _filter_check(bad, {checkpoint.name: checkpoint for checkpoint in row})
    else:
        check = _command_check(run, command, broken)
    bisection = halve(
        names,
        check,
        lambda probe, left: None if as_json else _print_probe(probe, left),
    )
    if as_json:
        print_json(_bisection_report(bisection))
    else:
        _print_bisection(bisection)
    is_good = bisection.first_bad is None and bisection.last_good is not None
    return int(ExitCode.DONE if is_good else ExitCode.PROBLEM)


def _stored_results(
    run: RunDirectory,
    checkpoints: Sequence[Checkpoint],
    evidence: Callable[[str], CheckpointEvidence] | None,
) -> dict[str, Verified]:
    """Returns the stored results that are still valid, by checkpoint.

    Args:
        run: The run directory.
        checkpoints: The checkpoints.
        evidence: What the list of all checkpoints has read; None without one.
    """
    names = [checkpoint.name for checkpoint in checkpoints]
    if evidence is None:
        return cached_results(run, frozenset(names))
    found = {name: evidence(name) for name in names}
    results = {n: valid_result(run, one.verification, one.files) for n, one in found.items()}
    return {name: result for name, result in results.items() if result is not None}


def _read_all(
    verifier: Verifier, checkpoints: Sequence[Checkpoint]
) -> Generator[Verified | Checkpoint]:
    """Yields what `_verified` returns of each; many small ones are read on all cores."""
    verify_one = partial(_verified, verifier)
    small = [checkpoint for checkpoint in checkpoints if checkpoint.size <= _WORTH_A_RATE]
    read = _read_many(verifier, small) if len(small) >= _MANY else map(verify_one, small)
    for checkpoint in checkpoints:
        yield next(read) if checkpoint.size <= _WORTH_A_RATE else verify_one(checkpoint)


def _read_many(
    verifier: Verifier, checkpoints: Sequence[Checkpoint]
) -> Generator[Verified | Checkpoint]:
    """Yields what `_verified` returns of each; stores many results at once."""
    unstored: list[Verified] = []

    def store() -> None:
        problem = verifier.store_together(unstored)
        if problem:
            print_message(f"The results are not stored: {problem}")
        unstored.clear()

    try:
        for found in parallel_map(partial(_verified, verifier, stores=False), checkpoints):
            if isinstance(found, Verified):
                unstored.append(found)
            if len(unstored) == _STORED_TOGETHER:
                store()
            yield found
    finally:
        store()
        verifier.merge()


def _verified(
    verifier: Verifier, checkpoint: Checkpoint, *, stores: bool = True
) -> Verified | Checkpoint:
    """Returns the result, or the checkpoint with the reason why it could not be read.

    A live trainer may delete or overwrite a checkpoint after it was listed.
    """
    try:
        if stores:
            return _read_now(verifier, checkpoint.name)
        verified = verifier.read(checkpoint.name)
        assert verified is not None, "nothing cancels it"
        return verified
    except (UsageError, RefusedError) as error:
        return replace(checkpoint, problem=str(error))


def _read_now(verifier: Verifier, name: str) -> Verified:
    meter = ReadProgress(name)
    try:
        verified, problem = verifier.verify(name, on_progress=meter)
    finally:
        meter.close()
    assert verified is not None, "nothing cancels it"
    if problem:
        print_message(f"The result is not stored: {problem}")
    return verified


def _print_verified(verified: Verified, size: int) -> None:
    record = verified.record
    word = _word(verified)
    tensors = f"{units.count(record.tensors, 'tensor')}, " if record.tensors else ""
    how = tensors + units.size(size)
    if verified.remembered:
        how += f", read {units.local_time(record.verified_at)} and unchanged since"
    elif record.bytes > _WORTH_A_RATE:
        how += f", {units.size(record.bytes / record.seconds)}/s"
    print_line(f"{record.name}  {word}  ({how})")
    for finding in record.findings[:_SHOWN]:
        print_line(f"    {finding.severity}: {finding.message}")
    for tensor in verified.not_finite[:_SHOWN]:
        print_line(f"    {_not_finite_words(tensor)}")
    more = max(0, len(record.findings) - _SHOWN) + max(0, len(verified.not_finite) - _SHOWN)
    if more:
        print_line(f"    … and {more:,} more; --json prints all")


def _not_finite_words(tensor: NonFiniteValues) -> str:
    what = " and ".join(
        words
        for count, words in (
            (tensor.nan, f"{tensor.nan:,} NaN"),
            (tensor.infinite, _infinite(tensor)),
        )
        if count
    )
    place = ", ".join(map(str, tensor.first))
    return f"{tensor.path}: {what} of {tensor.elements:,} values, the first at [{place}]"


def _infinite(tensor: NonFiniteValues) -> str:
    return f"{tensor.infinite:,} infinite"


def _word(verified: Verified) -> str:
    if verified.record.fault is not None:
        return state_for_fault(verified.record.fault).value
    if verified.not_finite:
        return "not finite"
    return "sound" if verified.is_exact else "inexact"


def _print_summary(
    results: Sequence[Verified], passed_over: Sequence[Checkpoint], files: Sequence[str]
) -> None:
    if files:
        _print_counts("file", files)
    if results or not files:
        _print_counts("checkpoint", [_word(result) for result in results])
    for checkpoint in passed_over:
        print_message(f"{checkpoint.name} was skipped ({checkpoint.problem})")


def _print_counts(noun: str, words: Sequence[str]) -> None:
    parts = [f"{words.count(word):,} {word}" for word in dict.fromkeys(["sound", *words])]
    print_line(f"{units.count(len(words), noun)}: {', '.join(parts)}.")


def _verified_report(verified: Verified) -> VerifiedCheckpoint:
    record = verified.record
    return VerifiedCheckpoint(
        name=record.name,
        ok=verified.ok,
        remembered=verified.remembered,
        verified_at=record.verified_at,
        seconds=record.seconds,
        bytes=record.bytes,
        tensors=record.tensors,
        findings=tuple(map(_finding_report, record.findings)),
        not_finite=tuple(
            NotFiniteTensor(entry.tensor, entry.nan, entry.infinite, entry.elements, entry.first)
            for entry in verified.not_finite
        ),
    )


def _finding_report(finding: FoundFault) -> VerifyFinding:
    return VerifyFinding(
        finding.severity, finding.kind, finding.file, finding.tensor or None, finding.message
    )


def _finite_check(run: RunDirectory) -> Callable[[str], Probe]:
    verifier = Verifier(run, finite=True)

    def check(name: str) -> Probe:
        verified = _read_now(verifier, name)
        if verified.not_finite:
            return Probe(name, ProbeOutcome.BAD, _not_finite_words(verified.not_finite[0]))
        if verified.record.fault is not None:
            state = state_for_fault(verified.record.fault).value
            return Probe(name, ProbeOutcome.SKIPPED, f"{state}: {verified.record.fault.message}")
        return Probe(
            name, ProbeOutcome.GOOD, f"all values of {verified.record.tensors} tensors are finite"
        )

    return check


def _filter_check(bad: Filter, checkpoints: Mapping[str, Checkpoint]) -> Callable[[str], Probe]:
    now = time.time()

    def check(name: str) -> Probe:
        checkpoint = checkpoints[name]
        unknown = bad.find_unknown_metrics([checkpoint])
        if unknown:
            return Probe(name, ProbeOutcome.SKIPPED, f"it has no {unknown[0]}")
        is_bad = bad.matches(checkpoint, now)
        shown = [f"{metric}={metric_text(checkpoint, metric)}" for metric in checkpoint.metrics]
        detail = " ".join(shown) or checkpoint.state.value
        return Probe(name, ProbeOutcome.BAD if is_bad else ProbeOutcome.GOOD, detail)

    return check


def _command_check(
    run: RunDirectory, command: Sequence[str], broken: Mapping[str, Checkpoint]
) -> Callable[[str], Probe]:
    def check(name: str) -> Probe:
        if name in broken:
            # It would fail because of the damage, not for the reason that is searched.
            return Probe(
                name, ProbeOutcome.SKIPPED, f"{broken[name].state.value}: {broken[name].problem}"
            )
        path = str(run.root / name)
        words = [*command, path]
        try:
            ended = subprocess.run(words, stdout=2, env={**os.environ, "TFCKPT_CHECKPOINT": path})
        except OSError as error:
            raise UsageError(
                f"{command[0]} cannot be run: {error.strerror}; check the command after `--`."
            ) from error
        status = ended.returncode
        detail = f"exit status {status}"
        if status == 0:
            return Probe(name, ProbeOutcome.GOOD, detail)
        if status == _SKIP:
            return Probe(name, ProbeOutcome.SKIPPED, detail)
        if 0 < status <= _LAST_STATUS:
            return Probe(name, ProbeOutcome.BAD, detail)
        raise TfckptError(f"`{shlex.join(words)}` {_ended_words(status)}")

    return check


def _ended_words(status: int) -> str:
    if is_of_signal(status):
        return f"{exit_words(status)}, so its result is unknown. Run it again."
    return (
        f"ended with status {status}, which has no meaning: 0 is good, {_SKIP} undecided, any "
        f"other up to {_LAST_STATUS} bad."
    )


def _print_probe(probe: Probe, left: int) -> None:
    rest = f"; {units.count(left, 'checkpoint')} left between" if left > 0 else ""
    print_line(f"  {probe.name}  {probe.outcome.value}  ({probe.detail.rstrip('.')}{rest})")


def _print_bisection(bisection: Bisection) -> None:
    if bisection.first_bad is None:
        print_line(_without_bad(bisection))
    elif bisection.undecided:
        names = ", ".join(bisection.undecided)
        print_line(f"The first bad one is {bisection.first_bad}, or one that was skipped: {names}.")
    else:
        before = f"; {bisection.last_good} before it is good" if bisection.last_good else ""
        print_line(f"The first bad one is {bisection.first_bad}{before}.")


def _without_bad(bisection: Bisection) -> str:
    if bisection.last_good is None:
        return "No result: every check was skipped."
    behind = (
        f"; later ones were skipped: {', '.join(bisection.undecided)}"
        if bisection.undecided
        else ""
    )
    return (
        f"{bisection.last_good} is good{behind}. Earlier checkpoints were not searched: bisect "
        "assumes that all checkpoints after a bad one are bad."
    )


def _bisection_report(bisection: Bisection) -> BisectReport:
    return BisectReport(
        first_bad=bisection.first_bad,
        last_good=bisection.last_good,
        undecided=bisection.undecided,
        checks=bisection.probes,
    )
