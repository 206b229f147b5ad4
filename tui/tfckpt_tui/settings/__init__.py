"""The configuration file, the settings that a user changes, and the list of recent runs.

Settings of a run belong in its run directory.
"""
