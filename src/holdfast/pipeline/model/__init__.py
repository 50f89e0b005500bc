"""What a pipeline is made of: definitions, records, identifiers. Data only."""
