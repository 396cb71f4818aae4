"""HTTP of the daemon: errors as problem documents, request bodies, response models, limits, the Unix socket."""
