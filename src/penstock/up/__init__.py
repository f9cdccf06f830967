"""The whole system on one machine: embedded NATS and Postgres, and a supervisor for everything."""

from penstock.up.nats import NatsServer
from penstock.up.postgres import PostgresServer
from penstock.up.supervisor import Settings, System

__all__ = ["NatsServer", "PostgresServer", "Settings", "System"]
