"""The metrics of a daemon, and how those of the ledger are collected."""
