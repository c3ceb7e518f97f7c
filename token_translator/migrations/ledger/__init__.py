"""The signer's ledger."""
