"""Handlers of events, by noun."""
