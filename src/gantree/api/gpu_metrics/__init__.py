"""What exporters and drivers say of the GPUs: their use, for pages, and their health, for the engine."""
