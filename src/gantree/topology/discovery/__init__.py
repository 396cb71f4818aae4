"""Parsers of what drivers and tools print about a machine: text in, values of the model out. Each is pure."""
