"""A Kubernetes API server of our own for tests: real HTTP, real streams of watches, and behaviour that was observed.

Start with server.py. What it is asked goes paths -> operations -> objects -> rules of a kind -> storage. kubelet.py and
controllers.py are clients like any other: they run against a real API server too. faults.py holds what can be made to
go wrong.
"""
