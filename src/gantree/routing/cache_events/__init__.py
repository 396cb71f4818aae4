"""Which replica has the beginning of a prompt in its KV cache, by the cache events that engines publish."""
