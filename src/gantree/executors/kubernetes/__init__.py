"""Kubernetes as a cluster: watches nodes, pods and pod groups, and binds whole gangs.

The API server owns what runs where. What is read of it is told to the core as events; orders of the core become
bindings and deletions. Decisions are made elsewhere: nothing here looks for room.
"""
