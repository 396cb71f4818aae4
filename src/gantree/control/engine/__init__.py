"""The engine: one controller on one thread, its loop, leader election, and a watchdog."""
