"""What errors of connections show: only a refused port is refused, and only if every address of the host refuses."""

import errno
import socket
import ssl

import pytest

from holdfast.agent.peers.observations import DialOutcome, outcome_of, outcome_of_attempts


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), DialOutcome.REFUSED),
        (ConnectionResetError(errno.ECONNRESET, "reset"), DialOutcome.RESET),
        (BrokenPipeError(errno.EPIPE, "pipe"), DialOutcome.RESET),
        (ConnectionAbortedError(errno.ECONNABORTED, "aborted"), DialOutcome.RESET),
        (TimeoutError(), DialOutcome.TIMED_OUT),
        (OSError(errno.ETIMEDOUT, "timed out"), DialOutcome.TIMED_OUT),
        (OSError(errno.EHOSTUNREACH, "no route"), DialOutcome.UNREACHABLE),
        (OSError(errno.ENETUNREACH, "no network"), DialOutcome.UNREACHABLE),
        (socket.gaierror(socket.EAI_NONAME, "unknown host"), DialOutcome.UNREACHABLE),
        (ssl.SSLCertVerificationError("not trusted"), DialOutcome.TLS),
        (ssl.SSLEOFError("ended"), DialOutcome.TLS),
    ],
)
def test_each_error_has_its_meaning(error: BaseException, outcome: DialOutcome) -> None:
    assert outcome_of(error) is outcome


def test_a_host_refuses_only_if_all_its_addresses_do() -> None:
    refused, timed_out = ConnectionRefusedError(), TimeoutError()
    assert outcome_of_attempts([refused, ConnectionRefusedError()])[0] is DialOutcome.REFUSED
    assert outcome_of_attempts([refused, timed_out]) == (DialOutcome.TIMED_OUT, timed_out)
