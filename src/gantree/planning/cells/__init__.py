"""Which domains a queue's cells are bound to, and which guests leave them."""
