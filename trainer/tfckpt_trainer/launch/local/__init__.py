"""Runs the supervisor on this machine, with workers as processes, some from a standby process.

What supervises them, wherever they run, belongs in `launch.supervision`.
"""
