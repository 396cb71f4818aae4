"""Migrations of the tables of older journals, one step a version, forwards only. Alembic runs them."""
