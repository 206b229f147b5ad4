"""Watches a run: file events trigger reads, and each read makes an immutable snapshot.

Never imports Textual.
"""
