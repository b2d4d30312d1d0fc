"""Measure a real `wayside serve` that has nothing to do: time to ready, resident memory, CPU.

    python tests/benchmarks/idle.py [--seconds 20] [--runs 3] [--json]

Ready means that the doors are open, from the moment the process was started. Memory and CPU are read from the
operating system once the gateway has settled; CPU is that of the given number of seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from http.client import HTTPConnection
from pathlib import Path

SETTLE_SECONDS = 3.0
LIMITS = {"ready_seconds": 1.0, "resident_megabytes": 80.0, "idle_percent": 1.0}
PROGRAM = "gateway.cli"


@dataclass(frozen=True)
class Measured:
    """One run's figures."""

    ready_seconds: float
    http_seconds: float
    resident_megabytes: float
    idle_percent: float


def measure(seconds: float) -> Measured:
    """Start a gateway over a fresh directory, let it settle, and look at it."""
    with tempfile.TemporaryDirectory() as data:
        arguments = ["serve", "--data", data, "--mqtt", "127.0.0.1:0", "--http", "127.0.0.1:0", "--json"]
        began = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-m", PROGRAM, *arguments], stdout=subprocess.PIPE)
        assert process.stdout is not None
        try:
            doors = json.loads(process.stdout.readline())
            ready = time.perf_counter() - began
            answered = _first_answer(doors["http"]) - began
            time.sleep(SETTLE_SECONDS)
            before = _cpu_seconds(process.pid)
            time.sleep(seconds)
            used = _cpu_seconds(process.pid) - before
            resident = _resident_megabytes(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)
    return Measured(round(ready, 3), round(answered, 3), round(resident, 1), round(100 * used / seconds, 3))


def _cpu_seconds(process: int) -> float:
    """Read user and system time: the 14th and 15th field of /proc/PID/stat (proc(5)), behind the name's bracket."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_megabytes(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1_048_576


def _first_answer(http: str) -> float:
    host, _, port = http.rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=20)
    connection.request("GET", "/readyz")
    connection.getresponse().read()
    connection.close()
    return time.perf_counter()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    runs = [asdict(measure(options.seconds)) for _ in range(options.runs)]
    medians = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    if options.json:
        print(json.dumps({"median": medians, "runs": runs, "limits": LIMITS, "load": os.getloadavg()[0]}))
        return 0
    print(f"{'':20} {'median':>9} {'wanted':>9}   of {options.runs} runs, load average {os.getloadavg()[0]:.1f}")
    for name, value in medians.items():
        wanted = f"< {LIMITS[name]:g}" if name in LIMITS else ""
        print(f"{name.replace('_', ' '):20} {value:9.3f} {wanted:>9}   {', '.join(str(run[name]) for run in runs)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
