"""A Kubernetes API server of our own for tests: real HTTP, real streams of watches, and behaviour that was observed.

    async with ApiServer() as server: ...                        on this event loop (server.py)
    with ServerThread() as running, Api(running.url) as api: ... on a thread, for tests without a loop (thread.py)
    python -m support.kubernetes --port 0 --cluster      as a process, with kubelet and controllers

Each behaviour was observed of Kubernetes 1.36 or is a published convention of its API, and has a test that says which.
A request goes this way: server (HTTP) -> paths -> access -> faults -> operations -> objects (what all resources share)
-> the rules of its kind (pods, claims, groups, budgets, namespaces, nodes, definitions) -> storage; watches and lists
read storage. garbage.py collects what nobody owns.

kubelet.py and controllers.py are clients like any other: they run against a real API server too (real.py), as do the
tests that state what a server does. The knobs of faults.py stand apart: nothing in the rules knows of them.
"""
