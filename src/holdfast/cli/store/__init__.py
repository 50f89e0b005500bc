"""`holdfast store …`: check a coordination store, its members, backups."""
