"""Fabrics that someone wrote down as trees, tables or labels: a parser per source."""
