"""Grading: profile checks, Promptfoo, verdict, evaluation (step 8).

Boundary: see the modules: verdict.py, answers.py, assertions.py and metadata.py are pure; profile_host.py and promptfoo.py start sandboxes; subject.py reads attempts, and
evaluation.py writes beside them; host.py, host_worker.py and driver.mjs are the programs that run inside.
Rules: nothing here makes a model call, but a judge's run (judge.py). A fault of a check, of a profile or of a tool is an error of that attempt and never a fail (B10, B11).
"""
