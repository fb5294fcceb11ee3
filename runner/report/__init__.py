"""Reports: attempts as one self-contained HTML page, or as Markdown for a step summary (B17, E5).

Boundary: see the modules: gather.py reads attempts, pages.py reads this folder's templates and spools; everything else is pure. Not here: writing the result (runner/cli/report.py).
Rules: every byte of an attempt is foreign. It is cut (bounds.py) before it is kept, made visible and escaped on its way out (pages.py, markdown.py), never before and in no other
place. A page asks nothing of anywhere, and equal attempts give equal bytes. One attempt at a time is held, however many there are.
"""
