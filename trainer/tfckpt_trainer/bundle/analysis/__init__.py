"""What is found out with the format reader: contents, statistics, comparison, NaN and Inf.

Reading bytes belongs in `bundle`; judging whether a checkpoint is whole in `catalog.verification`.
"""
