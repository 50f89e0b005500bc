"""The program `holdfast`. It imports nothing before it catches interrupts, and guards standard output before a command runs."""

_INTERRUPTED = 130  # as in `cli.output`, which is not imported yet


def run() -> int:
    """Run the command that `sys.argv` names."""
    try:
        from holdfast.cli.main import main
        from holdfast.cli.standard_output import guard_stdout

        guard_stdout()
        return main()
    except KeyboardInterrupt:
        return _INTERRUPTED
