"""The journal: inbox, facts and orders, in order and durable.

`contract` says what every journal promises, `encoding` how values become text, `sql` keeps the promise in any database;
`sqlite` is the default journal, `postgres` the one that several daemons share. Nothing here decides anything or knows
what a fact means.
"""
