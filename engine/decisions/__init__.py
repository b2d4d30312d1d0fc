"""Decisions: pure functions of records and a time. Each returns one of a closed set of results; none does I/O."""
