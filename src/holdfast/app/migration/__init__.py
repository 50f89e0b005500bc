"""Moving a stopped cluster to another store and object storage (docs/how-to/migrate.md): `migrate.py` has the order of steps."""
