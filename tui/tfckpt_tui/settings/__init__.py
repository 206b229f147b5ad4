"""The configuration file: reads, checks and changes the settings of a user.

Settings of a run belong in its run directory; the list of recent runs in `services.runs`.
"""
