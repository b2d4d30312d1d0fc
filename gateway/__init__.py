"""The gateway: the doors through which devices and people reach the engine, and the process that holds them."""
