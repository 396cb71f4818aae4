"""Reservations: which jobs get one, with which start and place, and what breaks it."""
