"""Parsers of fabrics written as trees, tables or labels, one per source."""
