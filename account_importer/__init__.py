"""IAM users become local accounts, under an administrator's supervision."""
