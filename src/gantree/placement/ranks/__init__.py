"""Which rank runs on which GPU."""
