"""The SSH front door: a token at the prompt of a stock `ssh`, a relay to the login node."""
