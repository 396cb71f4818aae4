"""The topology tree, what is taken of it, and what traffic across it costs."""
