"""Readers: processes that follow the journal and answer queries beside the engine, and the ledger of a standby."""
