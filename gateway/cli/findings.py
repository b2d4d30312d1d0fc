"""What a check of `wayside doctor` found, and how it is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from gateway.cli import output
from gateway.cli.invocation import current

_STYLES: Final = {"ok": "green", "warning": "yellow", "failed": "red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found; `repair` says what to do about it."""

    check: str
    result: Literal["ok", "warning", "failed"]
    text: str
    repair: str = ""


def tell(findings: Sequence[Finding]) -> int:
    """Print what was found; return the exit status, 1 if something is broken."""
    failed = any(finding.result == "failed" for finding in findings)
    if current().json:
        told = [{"check": f.check, "result": f.result, "text": f.text, "repair": f.repair} for f in findings]
        output.emit({"ok": not failed, "findings": told})
        return 1 if failed else 0
    for finding in findings:
        output.line(f"{output.styled(f'{finding.result:<8}', _STYLES[finding.result])}{finding.check}: {finding.text}")
        if finding.repair:
            output.line(f"        {finding.repair}")
    return 1 if failed else 0
