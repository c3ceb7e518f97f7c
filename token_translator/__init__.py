"""A token becomes a short-lived SSH certificate."""
