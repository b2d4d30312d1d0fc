"""Grants that name nothing that there is: a device is told no more than `not_found`, so people are told here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any


def keys_of(workflows: Mapping[str, Any]) -> dict[str, set[str]]:
    """Map each workflow of the API's list to its keys."""
    return {workflow["name"]: set(workflow["keys"]) for workflow in workflows["workflows"]}


def doubts(grants: Iterable[str], keys: Mapping[str, Collection[str]]) -> Iterator[str]:
    """Say of each grant that names no workflow, or no key, what it misses."""
    for grant in grants:
        kind, _, names = grant.partition(":")
        workflow, _, key = names.partition("/")
        if kind == "listen" or workflow == "*":
            continue
        if workflow not in keys:
            yield f"{grant}: there is no workflow {workflow}, so far"
        elif key not in {"", "*", *keys[workflow]}:
            yield f"{grant}: no step of {workflow} waits under the key {key}, so far"
