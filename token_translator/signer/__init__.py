"""The process that alone holds the authority keys, and the ledger of what it signed."""
