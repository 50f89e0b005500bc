"""What every package uses: errors, shared types, time, randomness, tasks, hashes, settings, failpoints. Imports nothing of ours."""
