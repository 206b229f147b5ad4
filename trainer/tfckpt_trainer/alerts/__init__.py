"""Sends events of a run to its receivers: commands and webhooks.

One process of a run sends: its supervisor, or its chief if nobody launched it.
"""
