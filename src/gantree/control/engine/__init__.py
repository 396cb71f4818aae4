"""The engine: one controller on one thread, the loop that steps it, who leads, and what ends a process that hangs."""
