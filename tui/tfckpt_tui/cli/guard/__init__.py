"""Runs a command in a child process, and ends it if its directory does not answer.

Commands themselves belong in `cli`.
"""
