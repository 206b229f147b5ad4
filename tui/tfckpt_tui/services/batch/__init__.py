"""The batch job of a run: what its scheduler says, cancelling it, and submitting it again.

Questions to Slurm itself belong to `tfckpt_trainer.launch.slurm.jobs`.
"""
