"""What all tests share: Hypothesis without deadlines, since how long an example takes is the machine's business."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("wayside", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("wayside")
