"""What each fact does to a ledger: a function a fact, by noun; `table` says which."""
