"""Tests of the page, without a browser."""
