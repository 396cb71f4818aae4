"""The record of a run: its program, versions and machine, without secrets."""
