"""What a worker reports of itself: metrics, heartbeat, summaries, journal.

Nothing here changes what the trainer does.
"""
