"""What is said of a series whose older part is thinned."""

from __future__ import annotations

from tfckpt_trainer.words.times import local_time


def thinned_words(before: float, width: int) -> str:
    """Returns which values of a series are kept, as a sentence.

    Args:
        before: Time of the newest thinned point, in seconds since the epoch.
        width: Steps of an interval.
    """
    return (
        f"Values before {local_time(before)} are thinned: of every {width:,} steps, the "
        "series keeps the first, lowest, highest and last value of each metric."
    )
