"""Notifications of users about their jobs: what is announced, to whom it may go, and how it gets there."""
