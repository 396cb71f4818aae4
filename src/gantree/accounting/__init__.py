"""What the cluster did over time, made of facts alone: ended jobs, GPU-seconds, waits. Pure; `journal` stores it."""
