"""The text protocol: Walrus's frames and verbs (docs/text.md)."""
