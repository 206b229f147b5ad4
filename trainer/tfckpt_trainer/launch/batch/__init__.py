"""Batch jobs of runs, whatever the scheduler: their states, their records, and what is asked of it.

How a scheduler is asked belongs in a package of its own, such as `launch.slurm`.
"""
