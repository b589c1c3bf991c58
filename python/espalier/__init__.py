"""Espalier from Python: `python -m espalier` starts the program as one of several processes (docs/scaling.md)."""
