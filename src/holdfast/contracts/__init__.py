"""The only backend interfaces: `Store` for coordination, `Objects` for data. Engines implement them, all other code uses them."""
