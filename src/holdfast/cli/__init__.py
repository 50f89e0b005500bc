"""The command line: argv and environment in, exit code out."""
