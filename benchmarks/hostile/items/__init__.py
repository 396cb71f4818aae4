"""The items of a hostile day, one a module: each has an `ITEM`."""
