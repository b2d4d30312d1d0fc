"""Several gateways, each a process with a data directory of its own, over one store."""
