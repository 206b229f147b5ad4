"""The scheduler that runs are submitted to. All that acts on batch jobs takes it from here."""

from __future__ import annotations

from typing import Final

from tfckpt_trainer.launch.batch.scheduler import Scheduler
from tfckpt_trainer.launch.slurm.slurm_scheduler import Slurm

SCHEDULER: Final[Scheduler] = Slurm()
"""Slurm, the only one so far."""
