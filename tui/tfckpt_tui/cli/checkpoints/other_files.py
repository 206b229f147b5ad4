"""What `inspect`, `compare` and `verify` print about files of other formats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from msgspec.structs import replace

from tfckpt_trainer.bundle.analysis.compare import ArrayComparison, TensorDifference
from tfckpt_trainer.bundle.analysis.statistics import Statistics, chunk_statistics
from tfckpt_trainer.bundle.dtypes import format_shape
from tfckpt_trainer.bundle.exchange.array_file import Array
from tfckpt_trainer.bundle.exchange.verify_file import FileResult, verify_array_file
from tfckpt_trainer.catalog.directory.other_formats import OtherFile
from tfckpt_trainer.errors import ExitCode, TfckptError, UsageError, describe_error
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.cli.checkpoints.tensor_output import (
    CHANGES,
    DIFFERENCE_WORDS,
    STATISTICS,
    change_cells,
    change_report,
    compared_report,
    comparison_report,
    difference_counts,
    statistics_cells,
    statistics_report,
    tensor_words,
)
from tfckpt_tui.cli.output import ReadProgress, print_json, print_line, print_table
from tfckpt_tui.formats import units
from tfckpt_tui.formats.variable_tree import has_text
from tfckpt_tui.reports.tensors import ComparedTensor, FileTensor, InspectFileReport
from tfckpt_tui.reports.verification import Skipped, VerifiedFile
from tfckpt_tui.services.checkpoints.tensor_files import (
    compare_sources,
    not_finite_words,
    opened,
    opened_file,
)

Figures = dict[str, Statistics | str]
"""The statistics of each tensor, or why it cannot be read."""


def inspect_file(
    run: RunDirectory, file: OtherFile, wanted: str, *, as_json: bool, stats: bool
) -> int:
    """Prints the tensors of a file; returns the exit status."""
    with opened_file(run, file) as source:
        arrays = [array for array in source.arrays if has_text(wanted, array.name, array.owner)]
        figures = _measured(arrays) if stats else {}
    if as_json:
        print_json(_file_report(file, arrays, figures, stats=stats))
    else:
        _print_file(file, arrays, figures)
    is_damaged = any(isinstance(figure, str) for figure in figures.values())
    return int(ExitCode.PROBLEM if is_damaged else ExitCode.DONE)


def _measured(arrays: Sequence[Array]) -> Figures:
    figures: Figures = {}
    meter = ReadProgress("reading")
    show = meter.sum_to(sum(array.size for array in arrays))
    try:
        for array in arrays:
            try:
                figures[array.name] = chunk_statistics(array.dtype, array.chunks, show)
            except (TfckptError, OSError) as error:
                figures[array.name] = describe_error(error)
    finally:
        meter.close()
    return figures


def _print_file(file: OtherFile, arrays: Sequence[Array], figures: Figures) -> None:
    print_line(f"file        {file.name}, {file.format.name}")
    if file.position:
        print_line(f"position    {file.position}")
    print_line(f"saved       {units.local_time(file.saved_at)}")
    print_line(f"size        {units.size(file.size)}")
    print_line()
    header = ["PATH", "DTYPE", "SHAPE", "SIZE", "LAYER", *(STATISTICS if figures else ())]
    rows = [
        [
            array.name,
            array.dtype,
            format_shape(array.shape),
            units.size(array.size),
            array.owner or "–",
            *(_cells(figures[array.name]) if figures else ()),
        ]
        for array in arrays
    ]
    print_table(header, rows, right={2, 3, 5, 6, 7, 8, 9})
    print_line()
    total = units.size(sum(array.size for array in arrays))
    print_line(f"{units.count(len(arrays), 'tensor')}, {total}")
    for problem in _problems(figures):
        print_line(f"problem: {problem}")


def _cells(measured: Statistics | str) -> Iterable[str]:
    return statistics_cells(None if isinstance(measured, str) else measured)


def _problems(figures: Figures) -> list[str]:
    return list(dict.fromkeys(figure for figure in figures.values() if isinstance(figure, str)))


def _file_report(
    file: OtherFile, arrays: Sequence[Array], figures: Figures, *, stats: bool
) -> InspectFileReport:
    tensors = [
        FileTensor(
            name=array.name,
            dtype=array.dtype,
            shape=array.shape,
            bytes=array.size,
            layer=array.owner or None,
        )
        for array in arrays
    ]
    if stats:
        tensors = [_with_figures(tensor, figures[tensor.name]) for tensor in tensors]
    return InspectFileReport(
        file=file.name,
        format=file.format.name,
        epoch=file.epoch,
        step=file.step,
        bytes=file.size,
        saved_at=file.saved_at,
        tensors=tuple(tensors),
    )


def _with_figures(tensor: FileTensor, measured: Statistics | str) -> FileTensor:
    if isinstance(measured, str):
        return replace(tensor, problem=measured, statistics=None)
    return replace(tensor, problem="", statistics=statistics_report(measured))


def compare_files(
    run: RunDirectory, before: str, after: str, *, norms: bool, everything: bool, json: bool
) -> int:
    """Prints what differs between two files, or a file and a checkpoint; returns the status."""
    with ExitStack() as stack:
        sides = [stack.enter_context(opened(run, name)) for name in (before, after)]
        sizes = {array.name: array.size for side in sides for array in side.arrays}
        comparisons = list(_metered(sum(sizes.values()), compare_sources(*sides)))
    if json:
        tensors = [_compared_report(tensor, norms=norms) for tensor in comparisons]
        print_json(comparison_report(sides[0].name, sides[1].name, (), tensors))
    else:
        _print_comparison(sides[0].name, sides[1].name, comparisons, norms, everything)
    is_damaged = any(tensor.problem for tensor in comparisons)
    return int(ExitCode.PROBLEM if is_damaged else ExitCode.DONE)


def _metered(total: int, work: Iterator[ArrayComparison]) -> Iterator[ArrayComparison]:
    meter, done = ReadProgress("reading"), 0
    try:
        for tensor in work:
            yield tensor
            done += (
                tensor.after.size if tensor.after else tensor.before.size if tensor.before else 0
            )
            meter(min(done, total), total)
    finally:
        meter.close()


def _print_comparison(
    before: str, after: str, comparisons: Sequence[ArrayComparison], norms: bool, everything: bool
) -> None:
    kinds = [tensor.difference for tensor in comparisons]
    print_line(f"{before} → {after}: {difference_counts(kinds.count)}")
    shown = [
        tensor
        for tensor in comparisons
        if everything or tensor.difference is not TensorDifference.EQUAL
    ]
    rows = [
        [
            tensor.name,
            DIFFERENCE_WORDS[tensor.difference] + (" (damaged)" if tensor.problem else ""),
            tensor_words(tensor.before),
            tensor_words(tensor.after),
            *(change_cells(tensor.change) if norms else ()),
        ]
        for tensor in shown
    ]
    if rows:
        header = ["TENSOR", "DIFFERENCE", "BEFORE", "AFTER", *(CHANGES if norms else ())]
        print_table(header, rows, right={4, 5, 6})
    for problem in dict.fromkeys(tensor.problem for tensor in comparisons if tensor.problem):
        print_line(f"problem: {problem}")


def _compared_report(comparison: ArrayComparison, *, norms: bool) -> ComparedTensor:
    tensor = compared_report(comparison, comparison.name, comparison.problem)
    return replace(tensor, change=change_report(comparison.change)) if norms else tensor


class FileVerdicts(NamedTuple):
    """What verifying files found.

    Attributes:
        ok: Whether none is damaged, and with `finite` all values are finite.
        files: The results.
        states: Of each of them, as in `FileResult`.
        skipped: Files that cannot be read here, each with the reason.
    """

    ok: bool
    files: list[VerifiedFile]
    states: list[str]
    skipped: list[Skipped]


def verify_files(
    run: RunDirectory, files: Iterable[OtherFile], *, finite: bool, show: bool
) -> FileVerdicts:
    """Reads files and compares their checksums; prints a line for each if `show` is set."""
    ok, read, states, skipped = True, list[VerifiedFile](), list[str](), list[Skipped]()
    for file in files:
        try:
            result = _verified(run, file)
        except (UsageError, OSError) as error:
            skipped.append(Skipped(file.name, describe_error(error)))
            continue
        ok = ok and not result.problem and not (finite and result.not_finite)
        read.append(
            VerifiedFile(
                name=file.name,
                format=file.format.name,
                bytes=file.size,
                checked=result.checked,
                problem=result.problem,
                not_finite=result.not_finite,
            )
        )
        states.append(result.state)
        if show:
            print_line(_verified_words(file, result, finite=finite))
    return FileVerdicts(ok, read, states, skipped)


def _verified(run: RunDirectory, file: OtherFile) -> FileResult:
    meter = ReadProgress(f"verifying {file.name}")
    try:
        return verify_array_file(run.root / file.name, meter.sum_to(file.size))
    finally:
        meter.close()


def _verified_words(file: OtherFile, result: FileResult, *, finite: bool) -> str:
    words = f"{file.name}  {result.state}  ({units.size(file.size)}): {result.reason}"
    if finite and result.not_finite:
        words += f"; {not_finite_words(result)}"
    return words
