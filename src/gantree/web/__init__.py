"""Pages for a browser. Each is one file that stands alone: nothing is loaded from elsewhere."""
