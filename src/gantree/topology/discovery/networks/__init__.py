"""Networks as cables: a parser per source, and a tree with rails made of the switch graph (`switch_graph`)."""
