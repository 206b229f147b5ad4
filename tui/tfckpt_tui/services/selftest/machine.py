"""Describes the machine of a self-test, for a report."""

from __future__ import annotations

import os
import platform
import subprocess
from collections import Counter
from pathlib import Path

from tfckpt_trainer import __version__
from tfckpt_trainer.rundir.storage.filesystems import mounted_type
from tfckpt_tui.formats import units
from tfckpt_tui.services.selftest.evidence import Evidence

_SECONDS = 10.0


def describe_machine(evidence: Evidence, directory: Path) -> dict[str, str]:
    """Returns facts by name.

    Args:
        evidence: What the workers recorded; empty if none started.
        directory: The scratch directory.
    """
    known = [one.devices for one in evidence.lines() if one.devices is not None]
    facts = {"tfckpt-tui": __version__, **(known[0].versions if known else {})}
    # Each process of a worker recorded them: count those of the first process.
    processes = {steps[0].process for steps in evidence.steps if steps}
    names = Counter(
        name
        for one in evidence.lines()
        if one.devices is not None and one.process in processes
        for name in one.devices.gpus
    )
    listed = ", ".join(f"{number} × {name}" for name, number in names.items())
    facts["GPUs"] = listed or ("none" if known else "unknown")
    if names:
        facts["driver"] = _driver()
    if known:
        replicas = units.count(known[0].replicas, "replica")
        workers = units.count(len(evidence.steps), "worker")
        facts["strategy"] = f"{known[0].strategy}, {workers}, {replicas}"
    load = os.getloadavg()[0]
    facts["CPUs"] = f"{os.cpu_count()}, load {load:.1f}"
    facts["system"] = f"{platform.system()} {platform.release()} {platform.machine()}"
    facts["file system"] = f"{mounted_type(directory) or 'unknown'}, of {directory.parent}"
    return facts


def _driver() -> str:
    """Returns the version of NVIDIA's driver; `unknown` without its tool."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return ", ".join(dict.fromkeys(done.stdout.split())) or "unknown"
