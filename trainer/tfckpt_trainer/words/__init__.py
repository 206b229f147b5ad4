"""Words for people: sentences, numbers, sizes, advice that fits the front end.

Nothing here knows what the words are about. The words of one subject stay with it.
"""
