"""The histories of this package's databases: seals (HTTP service), ledger and persons (signer)."""
