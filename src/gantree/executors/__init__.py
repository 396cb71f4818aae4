"""Clusters that carry out orders for real: `local` starts processes on this machine. Nothing is decided here."""
