"""An OpenID Connect issuer for tests and demos that behaves as INDIGO IAM 1.x does."""
