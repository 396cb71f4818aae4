"""Pages for a browser: HTML files that load nothing from elsewhere."""
