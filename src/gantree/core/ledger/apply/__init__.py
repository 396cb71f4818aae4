"""The effect of each fact on the ledger: one function per fact, by noun; `table` maps facts to functions."""
