"""Starts workers as processes of this machine, some of them from a standby process.

What supervises them, wherever they run, belongs in `launch`.
"""
