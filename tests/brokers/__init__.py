"""The bridge on real brokers."""
