"""Records in a NATS JetStream bucket: three servers or more, each record agreed on by a quorum.

The bucket is one that `nats kv` knows: stream `KV_<bucket>`, one subject a key, one message a subject. `subjects` turns
keys into subjects; `bucket` connects, makes and checks the bucket, and asks the stream's leader; `faults` says what
went wrong; `store` is what the engine sees.

What it needs of the servers: `max_payload: 2MB`, since a record may have 1 MiB; and, where a power cut that takes all
servers at once must not lose the last two minutes, `jetstream { sync_interval: always }`. What NATS cannot promise: a
leader that is cut off from the others, with a client on its side, may answer reads with old data until it notices,
about ten seconds later; and after a change of leader stamps step by what the two hosts' clocks differ.
"""

from engine.store.nats.store import NatsStore
from engine.store.nats.url import Location, parse

__all__ = ["Location", "NatsStore", "parse"]
