"""The environment of Alembic: runs the steps on the connection and in the transaction of `journal.sql.schema`."""

from alembic import context

from gantree.journal.sql.tables import METADATA, VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSION_TABLE,
)
context.run_migrations()
