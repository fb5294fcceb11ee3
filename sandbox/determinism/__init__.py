"""What makes programs see a pinned date, pinned random bytes and a pinned kernel: two small C parts (clock.c, attend.c), and how they are had (parts.py).

Boundary: see each file. Not here: which date and seed (runner/pinned.py), when they are used (runner/conduct.py).
Rules: nothing here is on the path of a free run, and none of it needs a compiler unless a pinned run, a shifted date or ``doctor --pinned`` asks for it.
"""
