"""The HTTP door: `/api/v1`, for devices and operators, and the health checks."""
