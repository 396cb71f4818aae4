"""`gantree topo import`: machines and fabrics from the output of other tools."""
