"""Tries whether a guard could ever act, before it fires."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches

from tfckpt_trainer.errors import describe_error
from tfckpt_trainer.guards.actions import Situation
from tfckpt_trainer.guards.conditions import EVERY_METRIC, Evidence
from tfckpt_trainer.guards.guard import Guard
from tfckpt_trainer.rundir.records.hyperparameter import Hyperparameter

_ALIKE = 0.7
"""How alike names are of which one may be meant: `val_loss` is not `loss`."""


def why_useless(
    guard: Guard, hyperparameters: Mapping[str, Hyperparameter], *, reads_input: bool = True
) -> str:
    """Returns why a guard could not act if it fired now, as sentences; empty if it could.

    Args:
        guard: The guard.
        hyperparameters: Those of the run, by name.
        reads_input: Whether the run has a dataset.
    """
    situation = Situation(
        step=0,
        evidence=Evidence(what="a trial", began=1),
        hyperparameters=hyperparameters,
        reads_input=reads_input,
        newest_good=lambda _: "any",
    )
    try:
        guard.commands(situation)
    except Exception as error:
        # An action may be the script's own.
        return describe_error(error)
    return ""


def why_unseen(guard: Guard, reported: Collection[str]) -> str:
    """Returns why a guard has nothing to look at so far, as sentences; empty if it has.

    Args:
        guard: The guard.
        reported: The names of all metrics that the run has reported.
    """
    metric = getattr(guard.condition, "metric", EVERY_METRIC)
    if metric == EVERY_METRIC or metric in reported:
        return ""
    if not reported:
        return f"The run has reported no metric yet, so {metric} may never be reported."
    near = get_close_matches(metric, reported, n=3, cutoff=_ALIKE)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"No metric {metric} is recorded.{hint} The metrics are: {', '.join(reported)}."
