"""Verifying checkpoints byte by byte, remembered results, and bisecting for the first bad one.

Reading the format belongs in `bundle`.
"""
