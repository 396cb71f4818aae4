"""What Alembic runs: the steps, on the connection and in the transaction that `journal.schema` has begun."""

from alembic import context

from gantree.journal.tables import METADATA, VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSION_TABLE,
)
context.run_migrations()
