"""The model of charts: series, curves, axes and smoothing, without a terminal.

How a chart is drawn is decided in `app.widgets.charts` and in `tools.reporting`.
"""
