"""The decision core: `Scheduler.handle(events) -> Decision`. Nothing here has a clock, a log, a thread or a file."""
