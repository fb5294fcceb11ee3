"""Confinement: spec, argv, run. Knows nothing of evals."""
