"""`gantree help`: topics as text on the terminal, and everything as man pages."""
