"""The metrics of a run: those that it reported, or else those of event files in its directory.

What charts keep and draw of them belongs in `charting`. Nothing here writes.
"""
