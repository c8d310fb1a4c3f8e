"""Hostile data from others, made up by the thousand: definitions, JSON lines, records with headers, commits.

Whatever it is, it ends in a typed error or is taken for what it is; it stops nobody else; and on its way out it is of
bounded length and steers no terminal. The suite makes up some hundreds, ``make prove`` as many times more as
``LVQ_FUZZ`` says.
"""
