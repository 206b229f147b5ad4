"""The command `inspect`: options and output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

import click
import msgspec
from msgspec import UNSET

from tfckpt_trainer.bundle.analysis.contents import Role, Variable
from tfckpt_trainer.bundle.analysis.statistics import Statistics
from tfckpt_trainer.bundle.dtypes import format_shape
from tfckpt_trainer.bundle.tensors import is_numeric
from tfckpt_trainer.errors import BundleError, ExitCode, describe_error
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, Derivation
from tfckpt_trainer.rundir.records.hyperparameter import number
from tfckpt_tui.cli.checkpoints.other_files import inspect_file
from tfckpt_tui.cli.checkpoints.tensor_output import (
    STATISTICS,
    statistics_cells,
    statistics_report,
)
from tfckpt_tui.cli.completion.checkpoint_names import CHECKPOINT_OR_FILE
from tfckpt_tui.cli.main import RunArgument, on_open_run, prints
from tfckpt_tui.cli.output import (
    ReadProgress,
    print_json,
    print_line,
    print_table,
)
from tfckpt_tui.formats import units
from tfckpt_tui.formats.checkpoint_columns import derivation_words, metric_text, not_finite_words
from tfckpt_tui.formats.hyperparameters import history_words, title
from tfckpt_tui.formats.text import cut
from tfckpt_tui.reports.tensors import (
    InspectedTensor,
    InspectFileReport,
    InspectReport,
    ResumedPart,
    TensorTotal,
    TensorTotals,
)
from tfckpt_tui.services.checkpoints.inspect import (
    Inspection,
    in_families,
    matching,
    statistics_of,
)
from tfckpt_tui.services.checkpoints.inspect import inspect as look_into
from tfckpt_tui.services.checkpoints.look_up import look_up
from tfckpt_tui.services.checkpoints.tensor_files import find_file

Figures = dict[str, Statistics | None]

_STATE_WIDTH = 500
"""Longest line about a value of the script, in characters; `--json` has all of it."""


@click.command()
@RunArgument
@click.argument("name", type=CHECKPOINT_OR_FILE, required=False, metavar="[CKPT]")
@click.option(
    "--filter",
    "wanted",
    metavar="TEXT",
    default="",
    help="Only variables with this text in their path.",
)
@click.option(
    "--stats", is_flag=True, help="Read the tensors, and print minimum, maximum, mean and norm."
)
@prints(InspectReport, InspectFileReport)
@on_open_run
def inspect(run: RunDirectory, name: str | None, wanted: str, stats: bool, as_json: bool) -> int:
    """Show the content of a checkpoint, and what a resume from it brings back.

    CKPT is a name or a step; by default the one that a start would resume from. It can be a file of
    Keras or safetensors in the directory. Exits 1 if it cannot be restored, or if part of it cannot
    be read.
    """
    file = find_file(run, name)
    if file is not None:
        return inspect_file(run, file, wanted, as_json=as_json, stats=stats)
    inspection = look_into(run, look_up(run, name))
    variables = in_families(matching(inspection.variables, wanted))
    figures, unread = _measured(run, inspection, variables) if stats else ({}, _Unread())
    problem = (
        inspection.checkpoint.problem or inspection.problem or next(iter(unread.all.values()), "")
    )
    not_read = unread.refused.keys() - inspection.damage.keys()
    inspection = replace(inspection, damage={**inspection.damage, **unread.all})
    if as_json:
        print_json(_inspection_report(inspection, variables, figures if stats else None, problem))
    else:
        _print_inspection(inspection, variables, figures, problem, wanted, not_read)
    return int(ExitCode.PROBLEM if problem else ExitCode.DONE)


@dataclass(frozen=True)
class _Unread:
    """Tensors without statistics, each with the reason.

    Attributes:
        damage: Those that are damaged.
        refused: Those that the operating system refused to read; they may be sound.
    """

    damage: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def all(self) -> dict[str, str]:
        return {**self.damage, **self.refused}


def _measured(
    run: RunDirectory, inspection: Inspection, variables: Sequence[Variable]
) -> tuple[Figures, _Unread]:
    """Returns the statistics of readable tensors, and why the others cannot be read."""
    figures: Figures = {}
    unread = _Unread()
    numeric = [variable for variable in variables if is_numeric(variable.entry)]
    meter = ReadProgress("reading")
    show = meter.sum_to(sum(variable.size for variable in numeric))
    try:
        for variable in variables:
            try:
                figures[variable.entry.name] = statistics_of(run, inspection, variable, show)
            except (BundleError, FileNotFoundError) as error:
                unread.damage[variable.entry.name] = describe_error(error)
            except OSError as error:
                unread.refused[variable.entry.name] = describe_error(error)
    finally:
        meter.close()
    return figures, unread


def _print_inspection(
    inspection: Inspection,
    variables: Sequence[Variable],
    figures: Figures,
    problem: str,
    wanted: str,
    not_read: AbstractSet[str],
) -> None:
    checkpoint = inspection.checkpoint
    step = "unknown" if checkpoint.step is None else f"{checkpoint.step:,}"
    print_line(f"checkpoint  {checkpoint.name}, {checkpoint.state.value}")
    if problem:
        print_line(f"problem     {problem}")
    by_name = ", by its name" if checkpoint.packed is None and checkpoint.step is not None else ""
    print_line(f"step        {step} on branch {checkpoint.branch}{by_name}")
    print_line(f"saved       {units.local_time(checkpoint.saved_at)} {checkpoint.trigger}".rstrip())
    if checkpoint.derived is not None:
        _print_derivation(checkpoint.derived)
    for key in checkpoint.metrics:
        print_line(f"{key:<11} {metric_text(checkpoint, key)}")
    if checkpoint.not_finite_tensors:
        print_line(f"values      {not_finite_words(checkpoint)}")
    files = units.count(checkpoint.shards, "data file")
    if checkpoint.packed is not None and checkpoint.packed.worker_bytes:
        workers = units.size(checkpoint.packed.worker_bytes)
        files += f", {workers} of it the workers' own state"
    print_line(f"size        {units.size(checkpoint.size)} in {files}")
    if inspection.has_graph is False:
        print_line("kind        saved by name, as TensorFlow 1 does: no object graph")
    print_line()
    if inspection.index is None:
        print_line("Its index cannot be read, so its content is unknown.")
    else:
        if variables or not wanted:
            _print_variables(inspection, variables, figures, not_read)
        else:
            print_line(f"No variable has {wanted!r} in its path.")
        print_line()
        rows = [(t.group, str(t.tensors), units.size(t.bytes)) for t in inspection.totals]
        print_table(("TOTAL", "TENSORS", "SIZE"), rows, right={1, 2})
    print_line()
    words = {True: "yes", False: "no", None: "?"}
    back = [(part.name, words[part.restored], part.detail) for part in inspection.resumed]
    print_table(("RESUMING BRINGS BACK", "", ""), back, right=set())
    record = checkpoint.record
    if record is not None:
        _print_hyperparameters(record)
        _print_workers(record)


def _print_derivation(made: Derivation) -> None:
    """Prints from which checkpoints this one was made."""
    print_line(f"made by     {derivation_words(made)}")
    for change in made.changes:
        print_line(f"            {change}")


def _print_hyperparameters(record: CheckpointRecord) -> None:
    if record.hyperparameters:
        print_line()
        rows = [
            (title(one), number(one.value), history_words(one)) for one in record.hyperparameters
        ]
        print_table(("HYPERPARAMETER", "VALUE", "CHANGED"), rows, right={1})


def _print_workers(record: CheckpointRecord) -> None:
    """Prints the statistics of each worker, and the values that the script saved."""
    if record.workers:
        print_line()
        rows = [
            (
                str(worker.index),
                worker.host,
                units.step_time(worker.step_seconds),
                units.step_time(worker.input_wait_seconds),
                units.step_time(worker.stall_seconds),
                _values({**worker.metrics, **worker.state}),
            )
            for worker in record.workers
        ]
        header = ("WORKER", "HOST", "STEP TIME", "INPUT WAIT", "STALL", "METRICS AND STATE")
        print_table(header, rows, right={0, 2, 3, 4})
    for name, value in record.state.items():
        print_line(cut(f"kept {name}: {value}", _STATE_WIDTH))


def _values(values: Mapping[str, object]) -> str:
    return "  ".join(
        f"{name}={units.metric(value) if isinstance(value, float) else value}"
        for name, value in values.items()
    )


def _print_variables(
    inspection: Inspection,
    variables: Sequence[Variable],
    figures: Figures,
    not_read: AbstractSet[str],
) -> None:
    header = ["PATH", "DTYPE", "SHAPE", "SIZE", "SHARD", "WHAT"]
    header += STATISTICS if figures else []
    paths = {variable.path for variable in variables if not variable.slot_of}
    rows = [
        [
            f"  {variable.path}" if variable.slot_of in paths else variable.path,
            variable.entry.dtype,
            format_shape(variable.entry.shape),
            units.size(variable.size),
            "–" if variable.entry.slices else str(variable.entry.shard),
            _what(variable) + _damage_words(inspection, variable, not_read),
            *(statistics_cells(figures.get(variable.entry.name)) if figures else ()),
        ]
        for variable in variables
    ]
    print_table(header, rows, right={2, 3, 4, 6, 7, 8, 9, 10})


def _damage_words(inspection: Inspection, variable: Variable, not_read: AbstractSet[str]) -> str:
    if variable.entry.name in not_read:
        return " (not read)"
    return " (damaged)" if variable.entry.name in inspection.damage else ""


def _what(variable: Variable) -> str:
    if variable.role is Role.SLOT:
        return f"{variable.slot_name} of {variable.slot_of}"
    return variable.role.value


def _inspection_report(
    inspection: Inspection, variables: Sequence[Variable], figures: Figures | None, problem: str
) -> InspectReport:
    checkpoint, record = inspection.checkpoint, inspection.checkpoint.record
    return InspectReport(
        checkpoint=checkpoint.name,
        step=checkpoint.step,
        branch=checkpoint.branch,
        state=checkpoint.state,
        problem=problem,
        object_graph=inspection.has_graph,
        tensors=tuple(_tensor_report(inspection, variable, figures) for variable in variables),
        totals=TensorTotals(
            **{t.group: TensorTotal(t.tensors, t.bytes) for t in inspection.totals}
        ),
        resuming=tuple(
            ResumedPart(part.name, part.restored, part.detail) for part in inspection.resumed
        ),
        record=None if record is None else msgspec.to_builtins(record),
    )


def _tensor_report(
    inspection: Inspection, variable: Variable, figures: Figures | None
) -> InspectedTensor:
    entry = variable.entry
    return InspectedTensor(
        name=entry.name,
        dtype=entry.dtype,
        shape=entry.shape,
        bytes=variable.size,
        shard=None if entry.slices else entry.shard,
        path=variable.path,
        role=variable.role,
        slot_of=variable.slot_of or None,
        slot_name=variable.slot_name or None,
        problem=inspection.damage.get(entry.name, ""),
        statistics=UNSET if figures is None else statistics_report(figures.get(entry.name)),
    )
