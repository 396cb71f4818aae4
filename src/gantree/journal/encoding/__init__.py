"""Events, facts, orders and snapshots as text, with the version of their kind, and back."""
