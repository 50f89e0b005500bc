"""Measurements: commands, never tests. Each reports ratios to a reference measured in the same run."""
