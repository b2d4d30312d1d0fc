"""Tests of `gateway.bridge` that need no broker."""
