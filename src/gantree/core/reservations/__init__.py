"""Starts that are promised: which gangs get one, what they hold, and when they come."""
