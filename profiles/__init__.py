"""Deterministic checks, one module a profile; pure."""
