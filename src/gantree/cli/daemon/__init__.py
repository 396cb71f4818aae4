"""Commands of the daemon's operator: start it, its journal, tokens, access and audit."""
