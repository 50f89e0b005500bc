"""The only backend interfaces: `Store` for coordination, `Objects` for data. Engines implement them, nothing else knows engines."""
