"""What holds for every test: how Hypothesis explores on a busy machine."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A slow moment of a shared machine is no failure. On a build server examples are the same each time, so that a red
# build is due to a change; at a desk they are new ones.
settings.register_profile(
    "wayside",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
    print_blob=True,
)
settings.load_profile("wayside")
