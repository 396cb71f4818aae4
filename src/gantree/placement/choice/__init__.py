"""The search: from a job to its place, or a refusal."""
