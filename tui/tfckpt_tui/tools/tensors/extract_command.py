"""The commands `extract` and `convert`: tensors into files of other programs, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from tfckpt_trainer.bundle.analysis.contents import Variable
from tfckpt_trainer.bundle.exchange.extract import ArrayFormat, Extraction
from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.catalog.directory.other_formats import OtherFile, end_of_name
from tfckpt_trainer.errors import ExitCode, UsageError
from tfckpt_trainer.machine.user_directories import expand_user
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.tools.tensors.convert_like import LikeConversion
from tfckpt_trainer.words.counts import few_of
from tfckpt_tui.cli.completion.checkpoint_names import (
    CHECKPOINT,
    CHECKPOINT_OR_FILE,
    complete_other_run,
)
from tfckpt_tui.cli.completion.tensor_names import TensorName
from tfckpt_tui.cli.confirmation import explain_interrupt
from tfckpt_tui.cli.main import (
    DirectoryPath,
    NamedPath,
    RunArgument,
    ToolCommand,
    on_open_run,
    prints,
)
from tfckpt_tui.cli.output import (
    ReadProgress,
    print_json,
    print_line,
    print_message,
    print_warnings,
)
from tfckpt_tui.formats import units
from tfckpt_tui.reports.new_files import ConvertReport, ExtractedTensor, ExtractReport
from tfckpt_tui.services.checkpoints.inspect import inspect
from tfckpt_tui.services.checkpoints.look_up import look_up
from tfckpt_tui.services.checkpoints.tensor_files import (
    choose_arrays,
    find_file,
    opened,
    opened_file,
)
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.services.runs.open_run import open_run
from tfckpt_tui.tools.tensors.edit import overflow_words, source_of
from tfckpt_tui.tools.tensors.extract import (
    LikeCheckpoint,
    TensorChoice,
    choose_tensors,
    extract_file,
    extract_like,
    step_words,
)
from tfckpt_tui.tools.tensors.extract import convert as write_checkpoint
from tfckpt_tui.tools.tensors.extract import extract as write_file

_MOST_NAMED = 3
"""Tensors that a message names."""

_Path = NamedPath()


@click.command(cls=ToolCommand, heading="Work with tensors")
@RunArgument
@click.argument("name", type=CHECKPOINT_OR_FILE, metavar="CKPT")
@click.argument("tensors", type=TensorName("name"), nargs=-1, metavar="[TENSOR]...")
@click.option(
    "--to",
    "kind",
    type=click.Choice([kind.value for kind in ArrayFormat]),
    help="The format; by default that of the ending of --output: .npz or .safetensors.",
)
@click.option(
    "--output",
    "-o",
    type=_Path,
    metavar="PATH",
    help="The new file, for npy the new directory. By default CKPT.npz, CKPT.safetensors or CKPT.",
)
@click.option(
    "--like",
    type=_Path,
    metavar="FILE",
    help="Write a Keras file with the structure of this one, which is not changed.",
)
@prints(ExtractReport)
@on_open_run
def extract(
    run: RunDirectory,
    name: str,
    tensors: tuple[str, ...],
    kind: str | None,
    output: Path | None,
    like: Path | None,
    as_json: bool,
) -> int:
    """Write tensors of a checkpoint into a file that NumPy or other frameworks read.

    CKPT is a name or a step. TENSOR is a path or name as `inspect` shows it, or a pattern such as
    'model/*'; by default all numeric tensors. Every tensor is checked against its checksum.
    CKPT can be a file of Keras or safetensors in the directory.
    """
    if like is not None:
        if kind is not None or tensors:
            raise click.UsageError("--like takes all tensors and the format from its file.")
        return _extract_like(run, name, like, output, as_json)
    kind = kind or _format_of(output)
    file = find_file(run, name)
    if file is not None:
        return _extract_file(run, file, tensors, ArrayFormat(kind), output, as_json)
    inspection = inspect(run, look_up(run, name))
    choice = choose_tensors(run, inspection, tensors)
    suffix = "" if kind == ArrayFormat.NPY else f".{kind}"
    path = output if output is not None else Path(f"{inspection.checkpoint.name}{suffix}")
    meter = ReadProgress("reading")
    try:
        with explain_interrupt(path):
            shown = meter.sum_to(choice.size)
            written = write_file(run, inspection, choice, path, ArrayFormat(kind), shown)
    finally:
        meter.close()
    left_out = [variable.entry.name for variable in choice.left_out]
    _print_extraction(inspection.checkpoint.name, path, kind, written, left_out, as_json=as_json)
    if not as_json:
        _print_changes(choice, written.widened, kind)
    return int(ExitCode.DONE)


def _extract_file(
    run: RunDirectory,
    file: OtherFile,
    tensors: Sequence[str],
    kind: ArrayFormat,
    output: Path | None,
    as_json: bool,
) -> int:
    stem = file.name.removesuffix(end_of_name(file.name))
    path = output or Path(stem if kind is ArrayFormat.NPY else f"{stem}.{kind}")
    meter = ReadProgress("reading")
    try:
        with explain_interrupt(path), opened_file(run, file) as source:
            arrays = choose_arrays(source, tensors)
            shown = meter.sum_to(sum(array.size for array in arrays))
            written = extract_file(source, arrays, path, kind, shown)
    finally:
        meter.close()
    _print_extraction(file.name, path, kind, written, [], as_json=as_json)
    return int(ExitCode.DONE)


def _extract_like(
    run: RunDirectory, name: str, like: Path, output: Path | None, as_json: bool
) -> int:
    with opened(run, name) as source:
        path = output or Path(f"{source.name}{end_of_name(like.name)}")
        with explain_interrupt(path):
            done = extract_like(source, like, path)
    written = Extraction(done.names, done.bytes, {})
    kind = end_of_name(like.name).removeprefix(".")
    _print_extraction(source.name, path, kind, written, done.left_out, done.taken, as_json=as_json)
    for words, names in (
        (f"Taken from {like.name}", done.taken),
        (f"Left out, because {like.name} has no place for them", done.left_out),
    ):
        if names and not as_json:
            print_message(f"{words}: {few_of(names, _MOST_NAMED)}.")
    return int(ExitCode.DONE)


def _print_extraction(
    name: str,
    path: Path,
    kind: str,
    written: Extraction,
    left_out: Sequence[str],
    taken: Sequence[str] = (),
    *,
    as_json: bool,
) -> None:
    if not as_json:
        count = units.count(len(written.names), "tensor")
        print_line(f"{path}: {count}, {units.size(written.bytes)}")
        return
    print_json(
        ExtractReport(
            checkpoint=name,
            path=str(path),
            format=kind,
            bytes=written.bytes,
            tensors=tuple(
                ExtractedTensor(tensor, stored, written.widened.get(tensor))
                for tensor, stored in written.names.items()
            ),
            left_out=tuple(left_out),
            taken=tuple(taken),
        )
    )


@click.command(cls=ToolCommand, heading="Work with tensors")
@RunArgument
@click.argument("name", metavar="CKPT")
@click.argument("source", type=_Path, metavar="FILE")
@click.option(
    "--like",
    type=(DirectoryPath(), CHECKPOINT),
    shell_complete=complete_other_run,
    metavar="RUN CKPT",
    help="Take names, types, the object graph and missing tensors from this checkpoint.",
)
@click.option(
    "--by-name",
    is_flag=True,
    help="Store the names alone, as TensorFlow 1 does, without an object graph.",
)
@click.option(
    "--shard-size",
    type=click.IntRange(min=1),
    metavar="MB",
    help="Start a new data file after this many megabytes.",
)
@prints(ConvertReport)
def convert(
    directory: Path,
    name: str,
    source: Path,
    like: tuple[Path, str] | None,
    by_name: bool,
    shard_size: int | None,
    as_json: bool,
) -> int:
    """Write a TensorFlow checkpoint from an npz, a safetensors or a Keras file.

    The new checkpoint is CKPT in directory RUN. With --like, it restores the same objects as
    that checkpoint, such as a Keras model with its optimizer. Without, names such as net/kernel
    become paths of objects: `tf.train.Checkpoint(net=net)` restores net.kernel. A Keras file
    numbers its variables, so convert one with --like.
    """
    if like is not None and by_name:
        raise click.UsageError("Give either --like or --by-name.")
    limit = None if shard_size is None else shard_size * 1_000_000
    other = None if like is None else _template(*like)
    meter = ReadProgress("writing")
    try:
        with explain_interrupt(index_path(expand_user(directory) / name)):
            record, conversion, told = write_checkpoint(
                directory,
                name,
                source,
                other,
                by_name=by_name,
                shard_size=limit,
                through=FrontEnd.COMMAND_LINE,
                on_progress=meter,
            )
    except FileNotFoundError as error:
        raise UsageError(f"{error.filename} does not exist.") from error
    finally:
        meter.close()
    written, taken = conversion.written, conversion.taken
    new = expand_user(directory) / name
    warnings = [words for words in (*_loss_words(conversion), step_words(new), told) if words]
    if as_json:
        print_json(
            ConvertReport(
                checkpoint=name,
                files=tuple(str(new.with_name(facts.name)) for facts in record.files),
                tensors=written.tensors,
                bytes=written.bytes,
                taken=tuple(variable.path for variable in taken),
                warning=" ".join(warnings),
            )
        )
        return int(ExitCode.DONE)
    count = units.count(written.tensors, "tensor")
    print_line(f"{name}: {count}, {units.size(written.bytes)}, verified")
    if other is not None and taken:
        print_message(f"Taken from {other.checkpoint.name}: {_named(taken)}.")
    print_warnings(warnings)
    return int(ExitCode.DONE)


def _format_of(output: Path | None) -> str:
    """Returns the format that the ending of a file names; that of npy is a directory."""
    ending = "" if output is None else output.suffix.lower()
    for kind in (ArrayFormat.NPZ, ArrayFormat.SAFETENSORS):
        if ending == f".{kind}":
            return kind
    raise click.UsageError(
        "Name the format: with --to, or by an --output that ends with .npz or .safetensors."
    )


def _template(directory: Path, name: str) -> LikeCheckpoint:
    run = open_run(directory)
    checkpoint = look_up(run, name)
    return LikeCheckpoint(run, checkpoint, source_of(run, checkpoint))


def _loss_words(conversion: LikeConversion) -> Iterator[str]:
    """Yields a sentence for each narrowing of types in which values changed."""
    for (old, new), loss in conversion.losses.items():
        if loss.rounded:
            values = units.count(loss.rounded, "value")
            yield f"{values} of type {old} became the nearest {new}."
        yield overflow_words(loss.overflown)


def _named(variables: Sequence[Variable]) -> str:
    return few_of([variable.path for variable in variables], _MOST_NAMED)


def _print_changes(choice: TensorChoice, widened: dict[str, str], kind: str) -> None:
    if widened:
        types = sorted({v.entry.dtype for v in choice.variables if v.entry.name in widened})
        into = ", ".join(sorted(set(widened.values())))
        count = units.count(len(widened), "tensor")
        print_message(
            f"{count} of type {', '.join(types)} became {into}, because {kind} does not have "
            f"{'these types' if len(types) > 1 else 'this type'}. The values are the same."
        )
    if choice.left_out:
        print_message(f"Left out, because they are not numeric: {_named(choice.left_out)}.")
