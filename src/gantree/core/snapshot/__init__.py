"""Snapshots of the ledger: how one is taken, and how a scheduler goes on from it."""
