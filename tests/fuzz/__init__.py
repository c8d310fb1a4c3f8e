"""Generated hostile data: definitions, JSON lines, records with headers, and commits.

Any input is either accepted or raises a typed error. It affects no other queue, and output that contains it has bounded
length and no terminal control characters. The normal suite generates hundreds of examples; ``make prove`` multiplies
that by ``LVQ_EFFORT``.
"""
