"""The front of a federation: clusters with daemons of their own, used as one.

`front` decides and is pure: it says which calls to make and is told what came of them; `driver` makes them. It keeps
jobs in `federated_jobs`, clusters with their leases in `clusters`, and when a call may come again in `call_schedule`.
What it decides is durable in `store` before any cluster hears of it. `tables` follows the tables of routers. `routes`
has the API of the front, `daemon` the process.
"""
