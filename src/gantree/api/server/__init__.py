"""The daemon: assembles journal, engine, readers and HTTP, as leader and as standby."""
