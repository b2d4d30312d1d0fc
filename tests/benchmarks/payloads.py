"""Prints how long the worst payloads take at the door: parsing, and a schema by each validator.

Run it as `python -m tests.benchmarks.payloads`; it takes a few seconds. Times are the best of several, in microseconds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from engine.limits import MAX_PAYLOAD_BYTES
from engine.payload import Payload, parse_payload
from engine.workflows.schema import compile_schema, compile_with_fallback


def filled(unit: bytes, before: bytes = b'{"a":[', after: bytes = b"]}") -> bytes:
    """Repeat `unit` until the cap is reached."""
    count = (MAX_PAYLOAD_BYTES - len(before) - len(after) + 1) // (len(unit) + 1)
    return before + b",".join([unit] * count) + after


CASES = {
    "a verdict": b'{"verdict":"known","score":0.93}',
    "200 bytes": json.dumps({"verdict": "known", "who": "x" * 120, "numbers": [1, 2, 3], "at": 1.5}).encode(),
    "empty objects": filled(b"{}"),
    "empty arrays": filled(b"[]"),
    "small objects": filled(b'{"a":1}'),
    "many names": b"{" + b",".join(b'"%x":1' % number for number in range(1_700)) + b"}",
    "whole numbers": filled(b"1"),
    "long fractions": filled(b"1.2345678901234567e-300"),
    "fractions that grow": filled(b"1e9"),
    "one long string": filled(b"x" * 16_000, b'{"a":"', b'"}'),
    "escapes": b'{"a":"' + b"\\u0041" * 2_700 + b'"}',
    "quotes": b'{"a":"' + b'\\"' * 8_000 + b'"}',
    "brackets in a string": b'{"a":"' + b"[" * 16_000 + b'"}',
    "15 levels, wide": filled(b"[" * 14 + b"]" * 14),
    "8,000 levels": b'{"a":' + b"[" * 8_000 + b"]" * 8_000 + b"}",
    "only brackets": b"[" * MAX_PAYLOAD_BYTES,
    "one huge number": b'{"a":' + b"9" * 16_000 + b"}",
    "huge exponent": b'{"a":1e-' + b"9" * 16_000 + b"}",
}
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"a": {"type": ["array", "string"], "items": {"not": {"const": "never"}}, "uniqueItems": False}},
        "additionalProperties": {"type": ["string", "number", "array"]},
    }
).encode()


def best(work: Callable[[], object], times: int = 7) -> float:
    """Take the fastest of several runs, in microseconds."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return min(taken) * 1e6


def main() -> None:
    """Print the table."""
    fast, slow = compile_schema(SCHEMA), compile_with_fallback(SCHEMA)
    out = sys.stdout
    out.write(f"{'payload':22}{'bytes':>7}{'parse':>10}{'schema':>10}{'fallback':>10}  answer\n")
    for name, raw in CASES.items():
        parsed = parse_payload(raw)
        line = f"{name:22}{len(raw):7}{best(lambda raw=raw: parse_payload(raw)):10.1f}"  # type: ignore[misc]
        if isinstance(parsed, Payload):
            text = parsed.text
            line += f"{best(lambda text=text: fast.problems(text)):10.1f}"  # type: ignore[misc]
            line += f"{best(lambda text=text: slow.problems(text), 2):10.1f}  accepted\n"  # type: ignore[misc]
        else:
            line += f"{'':20}  {parsed.reason}\n"
        out.write(line)


if __name__ == "__main__":
    main()
