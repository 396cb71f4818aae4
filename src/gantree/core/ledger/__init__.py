"""The ledger of decisions: its state, how each fact changes it, and its invariants."""
