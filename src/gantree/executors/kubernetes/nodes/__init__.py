"""From Node objects to the fabric. Pure."""
