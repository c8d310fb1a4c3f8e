"""The commit map: which offsets of a partition are done, as the text of a commit (G11).

It imports nothing else of core.
"""
