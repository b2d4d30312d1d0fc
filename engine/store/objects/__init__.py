"""Records as objects in S3, Google Cloud Storage or what speaks like them: nothing to run, and slow.

One object a record, created on the condition that there is none. `paths` turns keys into names that sort alike;
`requests` asks the service, again where that may help, and counts; `listing` finds keys with few requests; `faults`
says what went wrong; `store` is what the engine sees.

What an object store cannot promise. Its stamps are whole seconds: so are the answers of `now`, and a deadline may be
acted upon up to a second late. And a service may stamp an object when its upload *began*: `now` is then ahead of a
record whose upload is under way, by as long as that takes. A bucket needs no versions and must have no rule that
expires objects.
"""

from engine.store.objects.store import ObjectStore
from engine.store.objects.url import Location, parse

__all__ = ["Location", "ObjectStore", "parse"]
