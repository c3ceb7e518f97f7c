"""Logging in with SSH: certificates got and renewed, keys kept, a stock ssh told about them."""
