"""How the tables of older journals become today's, one step a version, forwards only. Alembic runs these."""
