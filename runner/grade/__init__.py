"""Grading: profile checks, Promptfoo, verdict, evaluation (step 8).

Boundary: see the modules: verdict.py, answers.py, assertions.py, metadata.py and evaluation.py are pure; profile_host.py and promptfoo.py start sandboxes; subject.py and
saved.py read and write files; host.py and driver.mjs are the programs that run inside.
Rules: nothing here makes a model call. A fault of a check, of a profile or of a tool is an error of that attempt and never a fail (B10, B11).
"""
