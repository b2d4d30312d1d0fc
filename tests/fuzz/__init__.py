"""Fuzzing by commands of their own: not part of the normal test run."""
