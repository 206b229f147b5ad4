"""The guards of a run, how often each fired, and what another one would have done."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tfckpt_trainer.errors import TfckptError, UsageError
from tfckpt_trainer.guards.actions import GoBack, SkipBatches
from tfckpt_trainer.guards.conditions import NotFinite, Spike
from tfckpt_trainer.guards.guard import Guard
from tfckpt_trainer.guards.replay import Replay, ReplayedFiring, recorded_metrics, replay
from tfckpt_trainer.guards.trial import why_unseen
from tfckpt_trainer.rundir.event_log import WHOLE_LOG, read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind, SeriesPoint
from tfckpt_trainer.rundir.records.run import GuardSource, RunInfo
from tfckpt_trainer.rundir.run_config import read_run_config
from tfckpt_trainer.rundir.series import SeriesTail
from tfckpt_trainer.rundir.storage.tail import TAIL_BYTES
from tfckpt_tui.formats import units
from tfckpt_tui.formats.list_columns import ListCell, ListColumn
from tfckpt_tui.formats.metric_names import main_of
from tfckpt_tui.formats.text import clean
from tfckpt_tui.reports.guards import GuardFacts
from tfckpt_tui.services.runs.account import give_account
from tfckpt_tui.services.runs.brief_reading import read_info, read_run_briefly

STEPS_ARE_SKIPPED = "Recorded values are about a second apart; a guard sees every step."
"""What a replay cannot see, if steps lie between its points."""


def summary(replay: Replay) -> str:
    """Returns how often a guard would have fired, or why that is unknown; safe to show."""
    if replay.why_not:
        return clean(replay.why_not)
    points = units.count(replay.points, "point")
    span = f"{points} from step {replay.first_step:,} to {replay.last_step:,}"
    return f"it would have fired {units.count(len(replay.firings), 'time')} in {span}."


def firing_words(fired: ReplayedFiring) -> str:
    """Returns when a guard would have fired, why, and what it would have done; safe to show."""
    to = f" (to {fired.checkpoint})" if fired.checkpoint is not None else ""
    what = f"{fired.firing.evidence.what}: {', '.join(fired.actions)}{to}"
    return clean(f"{units.local_time(fired.at)}  step {fired.firing.step:,}  {what}")


_OF_SCRIPT = "It has a condition or an action of the script, so it cannot be replayed here."


@dataclass(frozen=True)
class GuardOfRun:
    """A guard, and what it did.

    Attributes:
        rule: Its text.
        source: Who gave it.
        is_in_force: Whether a live trainer evaluates it.
        problem: Why its text is invalid, so that no trainer takes it; empty if it is valid.
        firings: The events of its firings, oldest first.
    """

    rule: str
    source: GuardSource
    is_in_force: bool
    problem: str
    firings: tuple[EventEntry, ...]

    @property
    def state_words(self) -> str:
        """Whether a trainer evaluates it."""
        if self.problem:
            return "invalid"
        return "in force" if self.is_in_force else "from the next start"


def _last(guard: GuardOfRun) -> str:
    if not guard.firings:
        return ""
    step = _step_of_last(guard)
    return units.local_time(guard.firings[-1].at) + (f", {step}" if step else "")


def _step_of_last(guard: GuardOfRun) -> str:
    last = guard.firings[-1].step if guard.firings else None
    return "" if last is None else f"step {last:,}"


COLUMNS: tuple[ListColumn[GuardOfRun], ...] = (
    ListColumn(
        "rule",
        lambda guard, _: clean(guard.rule),
        ListCell("guard", 30, align="<", stretch=4),
        command="GUARD",
    ),
    ListColumn(
        "fired",
        lambda guard, _: f"{len(guard.firings):,}",
        ListCell("fired", 5, style="muted"),
        command="FIRED",
    ),
    ListColumn(
        "last",
        lambda guard, _: _last(guard),
        ListCell("last", 12, rank=1, style="muted"),
        cell_text=lambda guard, _: _step_of_last(guard),
        command="LAST",
    ),
    ListColumn(
        "state",
        lambda guard, _: guard.state_words,
        ListCell("state", 19, rank=3, align="<", stretch=1, style="muted"),
        command="STATE",
    ),
    ListColumn(
        "source",
        lambda guard, _: guard.source.value,
        ListCell("from", 6, rank=4, align="<", style="muted"),
        command="FROM",
    ),
)
"""All columns of the guards of a run, in the order in which each part shows them."""


@dataclass(frozen=True)
class GuardsOfRun:
    """The guards of a run.

    Attributes:
        guards: Those of its trainer, and those of `config.toml` that its next start takes.
        is_live: Whether a trainer answers.
        problem: Why `config.toml` cannot be read; empty if it can.
    """

    guards: tuple[GuardOfRun, ...]
    is_live: bool
    problem: str = ""


def read_guards(
    run: RunDirectory,
    *,
    is_live: bool | None = None,
    events: Sequence[EventEntry] | None = None,
) -> GuardsOfRun:
    """Reads the guards of a run.

    Args:
        run: The run directory.
        is_live: Whether a trainer answers; None to look.
        events: The event log, oldest first; None to read it.

    Raises:
        TfckptError: A file cannot be read.
        OSError: The directory cannot be read.
    """
    if is_live is None:
        is_live = give_account(read_run_briefly(run, time.time()), None).trainer_answers
    try:
        texts, problem = read_run_config(run).guards, ""
    except UsageError as error:
        texts, problem = (), str(error)
    events = read_entries(run, WHOLE_LOG) if events is None else events
    guards = guards_of(read_info(run), texts, events, is_live=is_live)
    return GuardsOfRun(guards, is_live, problem)


def guards_of(
    info: RunInfo | None, texts: Iterable[str], events: Iterable[EventEntry], *, is_live: bool
) -> tuple[GuardOfRun, ...]:
    """Returns the guards of a run.

    Args:
        info: The description of the run.
        texts: The guards of its `config.toml`.
        events: The event log, oldest first.
        is_live: Whether a trainer answers: then it evaluates those of the description.
    """
    fired = [entry for entry in events if entry.kind is EventKind.GUARD]
    sources: dict[str, GuardSource] = {}
    for recorded in info.guards if info is not None else ():
        # Without a trainer, the next start takes those that `config.toml` has by then.
        if is_live or recorded.source is GuardSource.SCRIPT:
            sources[recorded.rule] = recorded.source
    in_force = set(sources) if is_live else set()
    problems = {}
    for text in texts:
        rule, problems[text] = _canonical(text)
        sources.setdefault(rule, GuardSource.CONFIG)
    return tuple(
        GuardOfRun(
            rule=rule,
            source=source,
            is_in_force=rule in in_force,
            problem=problems.get(rule, ""),
            firings=tuple(entry for entry in fired if entry.details.get("rule") == rule),
        )
        for rule, source in sources.items()
    )


def facts_of_guard(guard: GuardOfRun) -> GuardFacts:
    """Returns what reports tell of a guard."""
    last = guard.firings[-1] if guard.firings else None
    return GuardFacts(
        rule=clean(guard.rule),
        source=guard.source,
        in_force=guard.is_in_force,
        problem=clean(guard.problem),
        fired=len(guard.firings),
        last_at=last.at if last is not None else None,
        last_step=last.step if last is not None else None,
        last_message=clean(last.message) if last is not None else "",
    )


def suggested_guards(metrics: Collection[str]) -> tuple[str, ...]:
    """Returns the texts of guards that suit most runs.

    Args:
        metrics: The metrics that the run reports; the main one is watched for spikes.
    """
    spikes = [Guard(Spike(main_of(metrics)), [GoBack(), SkipBatches(10)])] if metrics else []
    guards = (
        Guard(NotFinite("*"), [GoBack(), SkipBatches(1)]),
        *spikes,
        Guard.parse("no_checkpoint 1h: notify"),
    )
    return tuple(map(str, guards))


def replay_guards(run: RunDirectory, rules: Iterable[str]) -> list[Replay]:
    """Returns what guards would have done in the recorded history of a run.

    Args:
        run: The run directory.
        rules: Their texts.

    Raises:
        UsageError: A text is no guard.
    """
    guards = [Guard.parse(rule) for rule in rules]
    series, events = _recorded(run)
    return [replay(guard, series, events) for guard in guards]


def replay_each(run: RunDirectory, rules: Iterable[str]) -> dict[str, Replay]:
    """Returns the same by rule, also if a guard of the script has classes of the script."""
    series, events = _recorded(run)
    replays = {}
    for rule in rules:
        try:
            replays[rule] = replay(Guard.parse(rule), series, events)
        except UsageError:
            replays[rule] = Replay(rule, why_not=_OF_SCRIPT)
    return replays


def unseen_metrics(
    run: RunDirectory, rules: Iterable[str], *, before_the_first: bool = False
) -> list[str]:
    """Returns a sentence or two about each guard whose metric the run has not reported so far.

    Args:
        run: The run directory.
        rules: The texts of guards. Those with classes of the script are left out.
        before_the_first: Whether to return some also if the run has reported no metric at all.
    """
    rules = tuple(rules)
    if not rules:
        return []
    reported = recorded_metrics(*_recorded(run))
    told: list[str] = []
    for rule in rules if reported or before_the_first else ():
        with suppress(UsageError):
            why = why_unseen(Guard.parse(rule), reported)
            told += [f"{rule}: {clean(why)}"] if why else []
    return told


def _recorded(run: RunDirectory) -> tuple[list[SeriesPoint], list[EventEntry]]:
    tail = SeriesTail(run, TAIL_BYTES)
    points = tail.read_new()
    while tail.is_behind:
        points += tail.read_new()
    return points, read_entries(run, WHOLE_LOG)


def _canonical(text: str) -> tuple[str, str]:
    """Returns the text that names a guard, and what is wrong with it."""
    try:
        return str(Guard.parse(text)), ""
    except TfckptError as error:
        return text, str(error)
