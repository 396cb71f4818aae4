"""Makes gangs of pods. Pure."""
