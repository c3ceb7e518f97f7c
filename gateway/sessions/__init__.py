"""Acting as the user: one conversation per user and node with the session program."""
