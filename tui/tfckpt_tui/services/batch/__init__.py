"""The batch job of a run: what its scheduler says, and how long an answer holds.

Questions to it belong in `tfckpt_trainer.launch.slurm.job_queries`. What cancels or submits a job
belongs in `services.control`.
"""
