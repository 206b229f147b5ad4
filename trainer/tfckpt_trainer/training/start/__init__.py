"""How a worker starts: heartbeats before the run exists, the standby process, the strategy.

What the supervisor does for it belongs in `tfckpt_trainer.launch`.
"""
