"""Errors of parsers: the actual format of a text, and all problems at once."""
