"""The page: rendered here, kept up to date over server-sent events, one style sheet and one script, all its own."""
