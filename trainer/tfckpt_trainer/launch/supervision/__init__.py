"""Supervises the workers of a run, wherever they run: watches, restarts, stops and reports.

How workers are started belongs in `launch.local` and `launch.slurm`.
"""
