"""The daemon: puts journal, engine, readers and HTTP together, while it leads and while it stands by."""
