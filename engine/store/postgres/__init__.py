"""Records in one PostgreSQL table: any number of instances on any number of hosts.

`connections` connects, and connects again; `faults` says what went wrong; `schema` makes and checks the tables by the
numbered files in `migrations`; `clock` has the argument why no record comes to light behind `now`; `listener` hears of
other instances' writes; `store` is what the engine sees.
"""

from engine.store.postgres.store import PostgresStore
from engine.store.postgres.url import Location, parse

__all__ = ["Location", "PostgresStore", "parse"]
