"""The words every floor speaks: errors, nouns, time, tasks, hashes, settings. Imports nothing of ours."""
