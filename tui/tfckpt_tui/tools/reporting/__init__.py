"""The report of a run: its facts put together once, and the renderers of them.

What the run itself is belongs in `runs`.
"""
