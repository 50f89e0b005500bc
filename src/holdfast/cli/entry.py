"""The program `holdfast`. It imports nothing before it catches interrupts, and guards its streams before a command runs.

A standard descriptor that is closed would be the next file's or socket's: libuv ends the process when it closes one of those three,
and what is printed would go there. So the first thing is to put the null device in its place, which cannot be read or written as a
command would: a command that needs it says so.
"""

import os

_INTERRUPTED = 130  # as in `cli.output`, which is not imported yet
_NULL_MODES = (os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)  # what is said on stderr is dropped


def run() -> int:
    """Run the command that `sys.argv` names."""
    try:
        _occupy_descriptors()
        from holdfast.cli.main import main
        from holdfast.cli.standard_input import guard_stdin
        from holdfast.cli.standard_output import guard_stderr, guard_stdout

        guard_stdin()
        guard_stdout()
        guard_stderr()
        return main()
    except KeyboardInterrupt:
        return _INTERRUPTED


def _occupy_descriptors() -> None:
    for descriptor, mode in enumerate(_NULL_MODES):
        try:
            os.fstat(descriptor)
        except OSError:
            null = os.open(os.devnull, mode)  # the lowest that is free, which is this one
            os.set_inheritable(null, True)
