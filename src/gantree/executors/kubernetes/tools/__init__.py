"""Commands around the scheduler: webhook, preflight, dry run, snapshot."""
