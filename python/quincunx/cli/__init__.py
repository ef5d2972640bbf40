"""The verbs of the `qx` program that need Python: `python3 -m quincunx.cli VERB ...`."""
