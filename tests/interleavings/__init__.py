"""Proves the protocol: every interleaving of the engine's own coroutines, a store operation at a time."""
