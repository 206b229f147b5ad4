"""The lines that a script needs before its training can be steered, and the message about them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tfckpt_trainer.words.advice import Advice, command_or_key
from tfckpt_trainer.words.counts import few_of
from tfckpt_tui.formats.process_columns import HostProcess
from tfckpt_tui.formats.text import clean


def steering_lines(root: Path) -> tuple[str, ...]:
    """Returns the lines of Python, to be copied: two for each kind of script, and their imports.

    Args:
        root: The directory that the script trains into.
    """
    place = json.dumps(clean(str(root)), ensure_ascii=False)
    return (
        "from tfckpt_trainer import TrainingRun",
        "from tfckpt_trainer.training import SteeringCallback",
        "# With model.fit:",
        f"run = TrainingRun({place}, model=model, optimizer=model.optimizer)",
        "model.fit(data, callbacks=[SteeringCallback(run)])",
        "# With a loop of your own:",
        f"run = TrainingRun({place}, model=model, optimizer=optimizer, dataset=dataset)",
        "for batch in run:",
    )


def why_not_steered(root: Path, processes: Sequence[HostProcess]) -> tuple[str, Advice]:
    """Returns why processes without this library take no commands, and what to do.

    Args:
        root: The directory that they train into.
        processes: The processes, one at least.
    """
    several = few_of([one.title for one in processes], 1)
    return (
        f"{several} {'do' if len(processes) > 1 else 'does'} not use tfckpt_trainer. Save, restore "
        "and set need two lines in the script.",
        Advice.of(
            "These are the lines:\n  {lines}",
            "Press {worker} to see and copy them.",
            lines="\n  ".join(steering_lines(root)),
            worker=command_or_key("worker"),
        ),
    )
