"""The journal in SQL: its tables, statements and transactions, for every kind of database."""
