"""Requests of users and operators about jobs, nodes and the policy: checked, then written to the inbox as events."""
