"""Run by Alembic: migrates over the connection that `penstock.migrations.upgrade` hands in."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table_schema=context.config.attributes["schema"],
)
with context.begin_transaction():
    context.run_migrations()
