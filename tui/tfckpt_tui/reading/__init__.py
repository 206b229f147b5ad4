"""Reads checkpoints and runs from Python; `tfckpt_tui` exports what is public.

Nothing here changes a run. Commands and screens take the same facts from `services`.
"""
