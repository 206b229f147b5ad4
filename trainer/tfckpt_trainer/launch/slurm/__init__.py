"""Runs on a Slurm cluster: the batch job, its supervisor, and questions to Slurm.

Does not belong here: what a launch on one machine does too; the package above has that.
"""
