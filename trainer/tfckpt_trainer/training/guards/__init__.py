"""The guards of a run: which are in force, and what they see on each worker.

Conditions and actions are in `tfckpt_trainer.guards`; `training.loop` carries out their commands.
"""
