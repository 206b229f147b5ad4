"""Finds, opens, lists and describes runs; one function gives every front end its account of a run.

What changes a run belongs in `services.control`.
"""
