"""Plans that need both policy and placement: who goes next, and where things go."""
