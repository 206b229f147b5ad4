"""Sends events of a run to its receivers, and writes its state for Prometheus.

One process of a run does it: its supervisor, or its chief if nobody launched it.
"""
