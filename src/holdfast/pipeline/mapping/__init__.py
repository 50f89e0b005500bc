"""What of a record goes into which column: the mapping itself, how it is inferred, applied, kept up to date and made a table."""
