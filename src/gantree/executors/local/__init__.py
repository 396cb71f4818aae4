"""The cluster on this machine: processes of gangs, each owned by a shim that outlives the daemon."""
