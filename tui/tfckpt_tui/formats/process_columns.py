"""A process that trains without this library, and the columns of lists of such processes.

`status`, the page of the app and JSON show what is declared here.
"""

from __future__ import annotations

import os
import shlex

import msgspec

from tfckpt_tui.formats import units
from tfckpt_tui.formats.list_columns import ListCell, ListColumn
from tfckpt_tui.formats.text import clean


class HostProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process of this host that trains without this library.

    Attributes:
        pid: Process id.
        started_at: When it was started.
        after_boot: How many seconds after the machine it was started; no clock changes that.
        script: The script that it runs, as in its command; empty if that is no Python script.
        command: Its command; of a long one, the first words.
        directory: Its working directory.
        cpu_percent: Percent of one core since the last look; at the first one, since its start.
        memory_bytes: Resident memory.
        gpu_memory_bytes: What it holds on all GPUs; null if it holds nothing, or without
            `nvidia-ml-py`.
        files: Checkpoint and event files that it has open.
        logs: Files to which its standard output and standard error go.
    """

    pid: int
    started_at: float
    after_boot: float
    script: str
    command: tuple[str, ...]
    directory: str
    cpu_percent: float
    memory_bytes: int
    gpu_memory_bytes: int | None = None
    files: tuple[str, ...]
    logs: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its number and what it runs, as part of a sentence; safe to show."""
        runs = os.path.basename(self.script or next(iter(self.command), ""))
        return clean(f"process {self.pid} ({runs})" if runs else f"process {self.pid}")

    @property
    def title(self) -> str:
        """The same as the beginning of a sentence."""
        return f"P{self.name[1:]}"


COLUMNS: tuple[ListColumn[HostProcess], ...] = (
    ListColumn(
        "pid", lambda one, _: str(one.pid), ListCell("pid", 7, style="strong"), command="PID"
    ),
    ListColumn(
        "script",
        lambda one, _: clean(one.script or next(iter(one.command), "")),
        ListCell("script", 20, align="<", stretch=1),
        command="SCRIPT",
    ),
    ListColumn("cpu", lambda one, _: f"{one.cpu_percent:.0f}%", ListCell("cpu", 5), command="CPU"),
    ListColumn(
        "memory",
        lambda one, _: units.size(one.memory_bytes),
        ListCell("memory", 8),
        command="MEMORY",
    ),
    ListColumn(
        "age",
        lambda one, at: units.age(max(0.0, at - one.started_at)),
        ListCell("runs for", 8, rank=1),
        command="RUNS FOR",
    ),
    ListColumn(
        "files",
        lambda one, _: str(len(one.files)),
        ListCell("open files", 10, rank=2),
        command="OPEN FILES",
    ),
)
"""All columns, in the order in which each part shows them."""


def process_facts(process: HostProcess) -> list[tuple[str, str]]:
    """Returns what the columns do not show: a label and a text for each line, safe to show."""
    facts = [("command", shlex.join(process.command)), ("directory", process.directory)]
    if process.gpu_memory_bytes is not None:
        facts.append(("gpu", f"{units.size(process.gpu_memory_bytes)} of GPU memory"))
    facts += [("open", path) for path in process.files]
    facts += [("log", path) for path in process.logs]
    return [(label, clean(text)) for label, text in facts]
