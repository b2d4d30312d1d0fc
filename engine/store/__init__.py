"""Stores: write-once records under ordered keys. `base` says what each promises; `open` turns a URL into one."""
