"""Exports: the registry as users and access rules of a broker. Pure: records in, files' texts out."""
