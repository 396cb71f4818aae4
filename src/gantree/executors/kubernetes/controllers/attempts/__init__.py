"""Attempts of gangs as pods: bound, followed, replaced, ended."""
