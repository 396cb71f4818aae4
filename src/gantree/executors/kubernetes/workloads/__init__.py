"""From pods to gangs. Pure."""
