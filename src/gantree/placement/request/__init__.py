"""Requests of a job in numbers of one fabric, and preferences of a site."""
