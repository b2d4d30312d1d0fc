"""The bridge: devices that publish to an external broker."""
