"""The lines of the checkpoint screen: facts, verification, restored state, statistics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tfckpt_trainer.bundle.analysis.statistics import Histogram, Statistics
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.directory.resumed_state import ResumedState
from tfckpt_trainer.catalog.scan.states import state_for_fault
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, SaveCost, VerificationRecord
from tfckpt_tui.app.widgets.base.icons import CHECKPOINT
from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine, line, padded, shorten
from tfckpt_tui.app.widgets.run.progress import reading_line
from tfckpt_tui.formats import units
from tfckpt_tui.formats.checkpoint_columns import derivation_words, metric_text, not_finite_words
from tfckpt_tui.formats.text import clean, strategy_words
from tfckpt_tui.monitor.background_verifier import VerificationProgress
from tfckpt_tui.services.checkpoints.inspect import Inspection

_MOST_CHARACTERS = 300
"""Characters shown of a value that the script saved; `inspect --json` has all of it."""

_BLOCKS = " ▁▂▃▄▅▆▇█"
_GAP: Span = ("  ", "")
_DOT: Span = (" · ", "faint")


def fact_lines(
    checkpoint: Checkpoint, inspection: Inspection | None, at: float
) -> list[StyledLine]:
    """Returns name, state, age and size, then the totals, then metrics and trigger."""
    sign = CHECKPOINT[checkpoint.state]
    step = "unknown" if checkpoint.step is None else f"{checkpoint.step:,}"
    age = units.age(max(0.0, at - checkpoint.saved_at))
    lines = [
        line(
            (clean(checkpoint.name), "title"),
            _GAP,
            *sign.with_word(checkpoint.state.value),
            *fact_spans("step", step),
            *fact_spans("branch", str(checkpoint.branch)),
            *fact_spans("size", units.size(checkpoint.size)),
            *fact_spans("shards", str(checkpoint.shards)),
            *fact_spans("saved", f"{age} ago, {units.local_time(checkpoint.saved_at)}"),
        )
    ]
    if inspection is not None and (inspection.index is not None or not checkpoint.problem):
        lines.append(_total_line(inspection))
    lines.append(_record_line(checkpoint))
    return lines


def check_lines(
    checkpoint: Checkpoint,
    result: VerificationRecord | None,
    reading: VerificationProgress | None,
    at: float,
    verify_key: str,
) -> list[StyledLine]:
    """Returns the progress of a verification, or the result of the last one."""
    if reading is not None:
        return [reading_line(reading, verify_key)]
    if result is not None:
        age = units.age(max(0.0, at - result.verified_at))
        return [*_finding_lines(result), _read_line(result, age)]
    if checkpoint.problem:
        return [line(("✗ ", "bad"), (clean(checkpoint.problem), "bad"))]
    if checkpoint.packed is not None:
        return [line(("✓ ", "good"), ("verified when it was saved", "muted"))]
    return [unverified_line(verify_key)]


def unverified_line(verify_key: str) -> StyledLine:
    """Returns how to verify what was not verified yet."""
    return line(
        ("○ ", "muted"), (f"not verified yet: press {verify_key} to read every byte", "muted")
    )


def resumed_lines(states: Sequence[ResumedState]) -> list[StyledLine]:
    """Returns each kind of state, and whether a restore brings it back."""
    signs = {True: ("✓ ", "good"), False: ("✗ ", "warn"), None: ("? ", "muted")}
    return [
        line(
            signs[state.restored], (padded(state.name, 23), "value"), (clean(state.detail), "muted")
        )
        for state in states
    ]


def record_lines(record: CheckpointRecord) -> list[StyledLine]:
    """Returns the cost of the save, the state of the script, and the metrics of each worker."""
    lines = [_cost_line(record.cost)] if record.cost is not None else []
    lines += _state_lines("state", record.state)
    for worker in record.workers:
        metrics = "  ".join(
            f"{clean(name)} {units.metric(value)}" for name, value in worker.metrics.items()
        )
        lines.append(
            line(
                (padded(f"worker {worker.index}", 11), "value"),
                (clean(worker.host), "muted"),
                *fact_spans("step time", units.step_time(worker.step_seconds)),
                *fact_spans("input wait", units.step_time(worker.input_wait_seconds)),
                *fact_spans("stall", units.step_time(worker.stall_seconds)),
                _GAP,
                (metrics, "muted"),
            )
        )
        lines += _state_lines(f"  worker {worker.index} state", worker.state)
    return lines


def change_lines(record: CheckpointRecord) -> list[StyledLine]:
    """Returns what was done to the tensors of a checkpoint that was made from another one."""
    changes = record.derived.changes if record.derived is not None else []
    return [line((clean(change), "value")) for change in changes]


def _cost_line(cost: SaveCost) -> StyledLine:
    rate = cost.bytes_per_second
    spans: list[Span] = [
        (padded("save", 11), "value"),
        ("in the background" if cost.background else "in the foreground", "muted"),
        *fact_spans("stall", units.step_time(cost.stall_seconds)),
        *fact_spans("write", units.step_time(cost.write_seconds)),
        *fact_spans("flush", units.step_time(cost.flush_seconds)),
        *fact_spans("verify", units.step_time(cost.verify_seconds)),
        *fact_spans("rate", "–" if rate is None else f"{units.size(round(rate))}/s"),
    ]
    if cost.slowing_seconds is not None:
        steps = units.count(cost.slowing_steps, "step")
        spans += fact_spans("slowed", f"{units.step_time(cost.slowing_seconds)} over {steps}")
    return StyledLine(tuple(spans))


def _state_lines(title: str, state: Mapping[str, Any]) -> list[StyledLine]:
    return [
        line(
            (f"{title} ", "label"),
            (f"{clean(str(name))} ", "value"),
            (shorten(clean(str(value)), _MOST_CHARACTERS), "muted"),
        )
        for name, value in state.items()
    ]


def statistics_lines(dtype: str, statistics: Statistics | None, width: int) -> list[StyledLine]:
    """Returns the statistics of a tensor and a small histogram."""
    if statistics is None:
        return [line((f"{dtype}: not numeric", "muted"))]
    strange = statistics.nan + statistics.infinite
    lines = [
        line(
            *fact_spans("min", _number(statistics.minimum)),
            *fact_spans("max", _number(statistics.maximum)),
            *fact_spans("mean", _number(statistics.mean)),
            *fact_spans("deviation", _number(statistics.deviation)),
            *fact_spans("norm", _number(statistics.norm)),
        ),
        line(
            *fact_spans("elements", f"{statistics.elements:,}"),
            *fact_spans("zeros", f"{statistics.zeros:,}"),
            _GAP,
            (
                f"NaN {statistics.nan:,}, infinite {statistics.infinite:,}",
                "bad" if strange else "muted",
            ),
        ),
    ]
    if statistics.histogram is not None:
        lines += _histogram_lines(statistics.histogram, width)
    return lines


def fact_spans(name: str, value: str) -> tuple[Span, ...]:
    """Returns a value with its name before it, and a gap before both."""
    return _GAP, (f"{name} ", "label"), (value, "value")


def _number(value: float | None) -> str:
    return "–" if value is None else units.metric(value)


def _total_line(inspection: Inspection) -> StyledLine:
    spans: list[Span] = []
    for total in inspection.totals:
        spans += [_DOT] if spans else []
        spans += [(f"{total.group} ", "label"), (units.size(total.bytes), "value")]
        spans.append((f" in {units.count(total.tensors, 'tensor')}", "muted"))
    if inspection.has_graph is False:
        spans += [_DOT, ("name-based, as saved by TensorFlow 1", "warn")]
    if inspection.problem:
        spans += [_DOT] if spans else []
        spans.append((clean(inspection.problem), "bad"))
    return StyledLine(tuple(spans))


def _record_line(checkpoint: Checkpoint) -> StyledLine:
    spans: list[Span] = []
    for name in checkpoint.metrics:
        style = "bad" if name in checkpoint.not_finite else "value"
        spans += [(f"{clean(name)} ", "label"), (metric_text(checkpoint, name), style), _GAP]
    if checkpoint.not_finite_tensors:
        spans += [(not_finite_words(checkpoint), "bad"), _GAP]
    made = checkpoint.derived
    if made is not None:
        spans += [("made by ", "label"), (clean(derivation_words(made)), "value"), _GAP]
    elif checkpoint.trigger:
        spans += [("saved ", "label"), (clean(checkpoint.trigger), "value"), _GAP]
    if checkpoint.parent and made is None:
        spans += [("parent ", "label"), (clean(checkpoint.parent), "value"), _GAP]
    record = checkpoint.record
    for name, value in record.world.items() if record is not None else ():
        spans += [
            (f"{clean(str(name))} ", "label"),
            (shorten(_world_value(name, value), 40), "muted"),
            _GAP,
        ]
    if not spans:
        spans = [("no record: not saved by tfckpt_trainer", "muted")]
    return StyledLine(tuple(spans))


def _world_value(name: str, value: Any) -> str:
    text = str(value)
    return strategy_words(text) if name == "strategy" else clean(text)


def _finding_lines(result: VerificationRecord) -> list[StyledLine]:
    return [
        line(
            ("✗ " if finding.severity == "error" else "! ", _tone(finding.severity)),
            (clean(finding.message), _tone(finding.severity)),
        )
        for finding in result.findings
    ]


def _tone(severity: str) -> str:
    return "bad" if severity == "error" else "warn"


def _read_line(result: VerificationRecord, age: str) -> StyledLine:
    fault = result.fault
    words = f"{units.count(result.tensors, 'tensor')}, {units.size(result.bytes)}"
    words += f" read {age} ago in {units.duration(result.seconds)}"
    sign = (
        ("✓ sound: ", "good") if fault is None else (f"✗ {state_for_fault(fault).value}: ", "bad")
    )
    return line(sign, (words, "muted"))


def _histogram_lines(histogram: Histogram, width: int) -> list[StyledLine]:
    """Returns bars two lines high, and the range below them."""
    highest = max(histogram.counts)
    cell = max(1, min(4, width // len(histogram.counts)))
    upper, lower = [], []
    for count in histogram.counts:
        # A bin with few elements still gets the smallest bar.
        level = math.ceil(count / highest * 2 * (len(_BLOCKS) - 1)) if count else 0
        upper.append(_BLOCKS[max(0, level - 8)] * cell)
        lower.append(_BLOCKS[min(8, level)] * cell)
    low, high = units.metric(histogram.low), units.metric(histogram.high)
    room = cell * len(histogram.counts)
    ends = low + high.rjust(max(len(high) + 1, room - len(low)))
    return [
        line(_GAP, ("".join(upper), "bar")),
        line(_GAP, ("".join(lower), "bar")),
        line(_GAP, (ends, "muted")),
    ]
