"""Routes of usage, bills, waste and history."""
