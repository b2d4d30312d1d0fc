"""A small MQTT 3.1.1 and 5 server made for devices: TCP, TLS and WebSocket, acknowledging only what is durable.

`port` is what the application behind it implements, `server.Listener` what the composition root starts. Below them a
codec without I/O (`codec`), the pure state of sessions and connections, and one asyncio protocol class.
"""
