"""What has been decided: the ledger, how each fact changes it, and what must always hold of it."""
