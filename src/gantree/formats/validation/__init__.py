"""Shared by all readers of files: kinds of fields, validation, and the line of each problem."""
