"""A hostile day on real daemons, an item a module: each states what goes wrong around a daemon, and for how long.

An item is a context manager over a `Site`: within it, the hostile thing goes on; behind it, all is well again. The
runner (`python -m hostile`, `make hostile`) enters it several times and counts violations, which are named in `scene`.
"""
