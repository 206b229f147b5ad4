"""The lines of the page of a file of another format."""

from __future__ import annotations

import shlex

from tfckpt_trainer.bundle.exchange.verify_file import FileResult
from tfckpt_trainer.catalog.directory.other_formats import OtherFile
from tfckpt_tui.app.widgets.base.styled_text import StyledLine, line, padded
from tfckpt_tui.app.widgets.checkpoints.checkpoint_lines import fact_spans, unverified_line
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.services.checkpoints.tensor_files import not_finite_words

_TAKEN_BY = {
    "compare": "compare RUN CKPT {}",
    "extract": "extract RUN {} --to npz",
    "convert": "convert RUN NEW RUN/{} --like RUN CKPT",
}
"""Commands that the app has no keys for."""


def file_fact_lines(
    file: OtherFile,
    tensors: int | None,
    verdict: FileResult | None,
    at: float,
    *,
    verifies: bool,
    verify_key: str,
) -> list[StyledLine]:
    """Returns name, format, age and size, then the number of tensors, then the verification.

    Args:
        file: The file.
        tensors: How many it has; None if that is not known.
        verdict: What verifying it found; None if it was not verified.
        at: Now, in seconds since the epoch.
        verifies: Whether it is verified just now.
        verify_key: The key that verifies it.
    """
    epoch = () if file.epoch is None else fact_spans("epoch", f"{file.epoch:,}")
    step = () if file.step is None else fact_spans("step", f"{file.step:,}")
    age = units.age(max(0.0, at - file.saved_at))
    count = () if tensors is None else fact_spans("tensors", f"{tensors:,}")
    return [
        line(
            (clean(file.name), "title"),
            ("  ", ""),
            (file.format.name, "value"),
            *epoch,
            *step,
            *fact_spans("size", units.size(file.size)),
            *count,
            *fact_spans("saved", f"{age} ago, {units.local_time(file.saved_at)}"),
        ),
        _verification_line(verdict, verify_key, verifies=verifies),
    ]


def command_lines(file: OtherFile) -> list[StyledLine]:
    """Returns what loads a file, and commands that take it."""
    name = clean(shlex.quote(file.name))
    commands = [
        line((padded(verb, 11), "label"), (f"tfckpt-tui {words.format(name)}", "value"))
        for verb, words in _TAKEN_BY.items()
    ]
    loader = line(
        (padded("loaded by", 11), "label"), (file.format.reader.replace("`", ""), "value")
    )
    return [loader, *commands]


def _verification_line(
    verdict: FileResult | None, verify_key: str, *, verifies: bool
) -> StyledLine:
    if verifies:
        return line(("reading every byte…", "muted"))
    if verdict is None:
        return unverified_line(verify_key)
    if verdict.problem:
        return line((f"✗ {verdict.state}", "bad"))
    spans = [(f"✓ {verdict.state}: ", "good"), (verdict.reason, "muted")]
    if verdict.not_finite:
        spans.append((f"; {clean(not_finite_words(verdict))}", "bad"))
    return line(*spans)
