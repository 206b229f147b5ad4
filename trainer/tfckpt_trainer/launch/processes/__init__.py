"""Processes of a run on this machine: workers, their logs, ports and GPUs, the supervisor's lock.

When they start and end is decided in `launch.supervision`.
"""
