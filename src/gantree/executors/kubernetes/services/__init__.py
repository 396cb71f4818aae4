"""GangServices: replicas of one gang that answer requests, each a GangJob."""
