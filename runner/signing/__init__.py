"""Signatures of attempts, by people's own SSH keys, offline (V1 of facts/replay.md §2; ADR 0013).

Boundary: see the modules: message.py and armor.py are pure, keygen.py starts ``ssh-keygen``, claim.py and sign.py read an attempt and the file beside it.
Rules: a signature is a file of its own beside the attempt and never part of it, so that signing changes no attempt's id.
"""
