"""The clients of a daemon: every request described once, sent by `client` or `async_client`, past daemons that fail."""
