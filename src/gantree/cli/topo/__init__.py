"""`gantree topo`: commands about topologies."""
