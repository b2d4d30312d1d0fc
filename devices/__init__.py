"""Devices: who they are, what they may do, and a simulator that plays them. It knows the engine, and no doors."""
