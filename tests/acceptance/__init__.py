"""The installed command as a subprocess."""
