"""What happened, kind by kind, and the function that takes it in."""
