"""Who goes next and what each is owed: so far priorities and the order of waiting jobs."""
