"""Why a gang has no place, and what would help."""
