"""What runs as a process of its own beside a member, with the standard library alone."""
