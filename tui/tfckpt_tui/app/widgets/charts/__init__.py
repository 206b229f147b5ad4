"""Line charts in braille, with axes and zoom.

Which series to draw is decided in `app.screens`.
"""
