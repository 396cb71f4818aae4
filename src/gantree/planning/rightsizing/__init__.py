"""Ranks GPU models and markets for a job."""
