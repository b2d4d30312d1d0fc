"""Every bound of the engine, by name and with its unit. Assertions at the end relate them."""

from __future__ import annotations

from typing import Final

# Names (gateway and engine check the same patterns; a wider name has widened somebody's access list before).
NAME_PATTERN: Final = r"[a-z0-9][a-z0-9_-]{0,63}"
MAX_NAME_CHARACTERS: Final = 64
NAME_FORM: Final = "a name is a-z, 0-9, _ and -, begins with a letter or digit and has at most 64 characters"
SIGNAL_ID_PATTERN: Final = r"[A-Za-z0-9_-]{1,64}"
NUMBER_DIGITS: Final = 12

# Payloads (protocol section "Payloads").
MAX_PAYLOAD_BYTES: Final = 16_384
MAX_PAYLOAD_DEPTH: Final = 16
FORBIDDEN_MEMBER_NAMES: Final = frozenset({"__proto__", "constructor", "prototype"})

# Waits.
MAX_TIMEOUT_SECONDS: Final = 31_536_000
MAX_ACCEPT_EARLY_SECONDS: Final = 3_600
MAX_ROUNDS: Final = 8
# Early signals of one slot that are stored at once. Their numbers go on for ever; only what is stored counts.
MAX_SLOT_RECORDS: Final = 1_000
# An operation that has run this long since it read the claims starts over, so that a removal, which pauses for
# REMOVAL_GRACE_SECONDS between its two steps, never takes a record away from under it.
OPERATION_SECONDS: Final = 60.0
REMOVAL_GRACE_SECONDS: Final = 300.0
CHAIN_RETENTION_SECONDS: Final = 86_400.0

# Instances and the sweep.
SWEEP_INTERVAL_SECONDS: Final = 10.0
HEARTBEAT_SECONDS: Final = 10.0
STALE_AFTER_SECONDS: Final = 30.0
STORE_TIMEOUT_SECONDS: Final = 10.0

# Records.
MAX_KEY_BYTES: Final = 1_024
MAX_RECORD_BYTES: Final = 1_048_576

# SQLite. A batch is what one transaction takes of what callers are waiting for; a list that is longer takes several.
SQLITE_BATCH_RECORDS: Final = 1_000
SQLITE_BATCH_BYTES: Final = 8_388_608
SQLITE_PAGE_RECORDS: Final = 1_024
SQLITE_LOCK_SECONDS: Final = 5.0
SQLITE_POLL_SECONDS: Final = 0.25
# How long the writer holds the file for an event loop that was offered a turn and does not come.
SQLITE_TURN_SECONDS: Final = 2.0
# As many as the bridge has in flight: the more share a commit, the less each costs, and the longer the loop is busy.
SQLITE_TURN_OPERATIONS: Final = 512
SQLITE_CACHE_KIB: Final = 8_192
SQLITE_WAL_PAGES: Final = 4_000
SQLITE_WAL_BYTES: Final = 67_108_864

# PostgreSQL. A statement ends, one way or the other, before its caller gives up on an answer.
POSTGRES_BATCH_RECORDS: Final = 1_000
POSTGRES_BATCH_BYTES: Final = 8_388_608
POSTGRES_PAGE_RECORDS: Final = 1_024
POSTGRES_STATEMENT_SECONDS: Final = 8.0
POSTGRES_CONNECT_SECONDS: Final = 3.0
POSTGRES_BACKOFF_SECONDS: Final = 2.0
POSTGRES_PATIENCE_SECONDS: Final = 6.0
POSTGRES_HINT_SECONDS: Final = 0.05

# NATS. An attempt that gets no answer is made again while the store may take its time.
NATS_ATTEMPT_SECONDS: Final = 2.0
NATS_CONNECT_SECONDS: Final = 4.0
NATS_BACKOFF_SECONDS: Final = 0.5
NATS_PATIENCE_SECONDS: Final = 10.0
NATS_IN_FLIGHT: Final = 256
NATS_GATHERED: Final = 256
NATS_HINT_SECONDS: Final = 0.05

# Object stores. The last numbers of so many prefixes are remembered, to look for later ones from there.
OBJECTS_ATTEMPT_SECONDS: Final = 3.0
OBJECTS_BACKOFF_SECONDS: Final = 1.0
OBJECTS_PATIENCE_SECONDS: Final = 10.0
OBJECTS_IN_FLIGHT: Final = 64
OBJECTS_HINT_SECONDS: Final = 2.0
OBJECTS_REMEMBERED: Final = 10_000

# Workflows and runs.
MAX_DEFINITION_BYTES: Final = 262_144
MAX_STEPS: Final = 1_000
MAX_FOR_EACH: Final = 1_000
MAX_EVENTS: Final = 100_000
MAX_OUTPUT_BYTES: Final = 65_536
MAX_INPUTS_BYTES: Final = 262_144
MAX_ITEMS_BYTES: Final = 524_288
MAX_MESSAGE_CHARACTERS: Final = 1_000
OUTBOX_RETENTION_SECONDS: Final = 300.0

# What a definition may hold: its text, its schemas, its expressions, its tasks.
MAX_DOCUMENT_VALUES: Final = 20_000
MAX_DOCUMENT_DEPTH: Final = 64
MAX_DOCUMENT_NUMBER_CHARACTERS: Final = 300
MAX_EXPRESSION_CHARACTERS: Final = 4_096
MAX_SUBSCHEMAS: Final = 500
# How many subschemas may look at one value of a payload, what its parents' schemas ask of it included.
MAX_SCHEMA_WORK: Final = 2_000
MAX_SCHEMA_PROBLEMS: Final = 20
# Of a schema as a wait captures it: what is filled in may repeat an input many times.
MAX_CAPTURED_SCHEMA_BYTES: Final = 524_288
MAX_PATTERN_CHARACTERS: Final = 1_000
MAX_PATTERN_REPEAT: Final = 1_000
# Characters and classes once every {n,m} is written out: what a regular-expression engine's program grows with.
MAX_PATTERN_ATOMS: Final = 1_000
MAX_PATTERN_DEPTH: Final = 20
# The same over all patterns of one schema: what compiling it, at its first payload, may take.
MAX_SCHEMA_PATTERN_ATOMS: Final = 5_000
MAX_TASK_TIMEOUT_SECONDS: Final = 86_400
MAX_ARGUMENTS: Final = 256
MAX_CONCURRENCY: Final = 1_000
MAX_PUBLISH_TOPIC_BYTES: Final = 1_024
# Mosquitto ends the connection over a topic of more than 200 levels; EMQX takes 128 unless it is told otherwise.
MAX_PUBLISH_TOPIC_LEVELS: Final = 128

assert OPERATION_SECONDS + STORE_TIMEOUT_SECONDS < REMOVAL_GRACE_SECONDS / 2
assert STALE_AFTER_SECONDS >= 2 * HEARTBEAT_SECONDS
assert MAX_ACCEPT_EARLY_SECONDS < CHAIN_RETENTION_SECONDS
assert MAX_PAYLOAD_BYTES + MAX_OUTPUT_BYTES + MAX_DEFINITION_BYTES < MAX_RECORD_BYTES
assert MAX_INPUTS_BYTES + MAX_DEFINITION_BYTES <= MAX_RECORD_BYTES / 2
assert MAX_ITEMS_BYTES <= MAX_RECORD_BYTES / 2
# A claim and a registration have room for it, and one that needs no filling in is always captured.
assert MAX_DEFINITION_BYTES <= MAX_CAPTURED_SCHEMA_BYTES <= MAX_RECORD_BYTES / 2
# Another process's lock is reported as such, and as certain, before the caller gives up on an answer.
assert SQLITE_TURN_SECONDS < SQLITE_LOCK_SECONDS < STORE_TIMEOUT_SECONDS
# A slot, with its seal, is read by one statement, at one moment.
assert MAX_SLOT_RECORDS < SQLITE_PAGE_RECORDS
assert MAX_SLOT_RECORDS < POSTGRES_PAGE_RECORDS
assert POSTGRES_STATEMENT_SECONDS < STORE_TIMEOUT_SECONDS
assert POSTGRES_PATIENCE_SECONDS + POSTGRES_CONNECT_SECONDS < STORE_TIMEOUT_SECONDS
MAX_CHILD_DEPTH: Final = 16
