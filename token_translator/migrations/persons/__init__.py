"""The keys under which the ledger keeps personal fields."""
