"""Faults: the gateway is killed, the store goes away, and nothing acknowledged is lost."""
