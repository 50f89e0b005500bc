"""The partition registry (PXRS): claims, fenced checkpoints, expiry, push assignment. Usable alone, over any Store."""
