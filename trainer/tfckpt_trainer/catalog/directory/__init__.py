"""What lies in a run directory: its checkpoints, their records, trash, pins and results.

Each module reads one kind of thing and judges nothing; `scan` puts them together.
"""
