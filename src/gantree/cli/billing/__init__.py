"""Statements: what use cost, for whom, as table, CSV, Parquet, HTML, PDF or FOCUS; beside invoices and clouds."""
