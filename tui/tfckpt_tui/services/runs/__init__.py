"""The account of a run: what it does, where it is and what is wrong, for every front end.

What changes a run belongs beside this folder.
"""
