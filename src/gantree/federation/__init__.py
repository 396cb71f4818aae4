"""The front of a federation: clusters with daemons of their own, used as one.

`front` decides and is pure: it says which calls to make and is told what came of them; `driver` makes them. What it
decides is durable in `store` before any cluster hears of it. `routes` has the API of the front, `daemon` the process.
"""
