"""Networks as cables: a parser per source, and how a graph of switches becomes a tree with rails (`switch_graph`)."""
