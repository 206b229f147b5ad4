"""Dialogs: one question each, with what follows from the answer.

What the answer does belongs in `services`.
"""
