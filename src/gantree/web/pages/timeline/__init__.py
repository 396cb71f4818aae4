"""Recorded facts as rows of a timeline."""
