"""Requests of one pod."""
