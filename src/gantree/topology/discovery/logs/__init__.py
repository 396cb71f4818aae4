"""Parsers of benchmark output: figures measured on a fabric, not the fabric."""
