"""The `headgate` command: a person's way to a site's gateway; it speaks HTTP only."""
