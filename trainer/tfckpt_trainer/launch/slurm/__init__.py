"""Runs the supervisor in a Slurm job, and its workers as tasks of job steps.

What tells the cluster from Slurm's variables belongs in `tfckpt_trainer.cluster`, because training
processes need it too.
"""
