"""Why no record that becomes visible after an answer of `now` bears an earlier stamp.

*The trap.* A stamp is taken at `s`, inside a transaction; the record becomes visible at its commit, `c > s`. Whoever
reads the clock between the two, at `t`, and then looks for the record, misses it and yet, later, meets a stamp `s < t`.
`clock_timestamp()` alone falls into it, and `now()`, which is the transaction's beginning, more deeply still.

*The rule.* There is one advisory lock for the clock. Every transaction that stores records takes it **shared**, before
it takes its stamp, and holds it to its end; PostgreSQL makes a commit visible before it lets go of the transaction's
locks. `now` takes it **exclusively**, and reads the clock while it holds it. So for each storing transaction one of
two things is true. It had its lock before: then it has ended when `now` gets the lock, and its records are visible, or
it was rolled back. Or it gets the lock after: then it takes its stamp after, from a clock that does not go back.
Writers do not wait for each other, and share the server's group commit; they wait only while somebody asks for the
time.

*A clock that does not go back.* The server's may: stepped by hand, or another host's after a failover. So each tick is
the higher of `clock_timestamp()` and the highest tick so far, which a sequence keeps: its value is shared at once,
survives a rollback, and reaches the log before the commit that uses it, hence every standby that has the records has
it too. After a failover to a clock that is behind, stamps stand still until it has caught up, and nothing is reversed.
Reading and raising the sequence is one step under a second lock, held for microseconds. `now` raises it as well, and
commits that: an answer that was given binds whoever comes later.

*An answer stays true.* "Nothing that becomes visible later bears an earlier stamp than `t`" holds for ever once it
held. So whoever asks only whether `until` has passed is answered from the latest strict answer when that is at or
after `until`; and, while this host's reckoning of the server's clock (`stamps.StoreClock`) is before it, from that: it
says only "not yet", on which nothing rests. Between the two the server decides.
"""

from __future__ import annotations

from typing import Final

# Takes the lock exclusively, and raises the sequence; in microseconds. What creates takes it shared.
NOW: Final = "SELECT wayside_now()"
