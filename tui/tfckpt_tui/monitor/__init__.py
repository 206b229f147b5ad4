"""From file events to one immutable snapshot of the run per tick.

Reads only, and never imports Textual.
"""
