"""The eval runner: what a fixture, an attempt and a verdict are."""

__version__ = "0.1.0"
