"""Records in one SQLite file: a single host, any number of processes, nothing to install.

The file is in WAL mode with `synchronous=FULL`. Beside it lie `FILE-wal`, which holds records that were answered as
durable, and `FILE-shm`. A copy of the file alone is therefore not a backup: while anything has it open, take one with
`sqlite3 FILE "VACUUM INTO 'COPY'"` or `sqlite3 FILE ".backup COPY"`; when nothing has, copy FILE and FILE-wal together.
A network file system does not work: the processes share memory through `FILE-shm`.

`file` opens it and names its faults, `clock` stamps its records, `batch` stores them, `writer` is the one thread that
writes, `store` is what the engine sees.
"""

from engine.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
