"""What errors of connections show: only a refused port is refused, and only if every address of the host refuses."""

import errno
import socket
import ssl

import pytest

from holdfast.agent.peers.observations import Outcome, outcome_of, outcome_of_attempts


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), Outcome.REFUSED),
        (ConnectionResetError(errno.ECONNRESET, "reset"), Outcome.RESET),
        (BrokenPipeError(errno.EPIPE, "pipe"), Outcome.RESET),
        (ConnectionAbortedError(errno.ECONNABORTED, "aborted"), Outcome.RESET),
        (TimeoutError(), Outcome.TIMED_OUT),
        (OSError(errno.ETIMEDOUT, "timed out"), Outcome.TIMED_OUT),
        (OSError(errno.EHOSTUNREACH, "no route"), Outcome.UNREACHABLE),
        (OSError(errno.ENETUNREACH, "no network"), Outcome.UNREACHABLE),
        (socket.gaierror(socket.EAI_NONAME, "unknown host"), Outcome.UNREACHABLE),
        (ssl.SSLCertVerificationError("not trusted"), Outcome.TLS),
        (ssl.SSLEOFError("ended"), Outcome.TLS),
    ],
)
def test_each_error_has_its_meaning(error: BaseException, outcome: Outcome) -> None:
    assert outcome_of(error) is outcome


def test_a_host_refuses_only_if_all_its_addresses_do() -> None:
    refused, timed_out = ConnectionRefusedError(), TimeoutError()
    assert outcome_of_attempts([refused, ConnectionRefusedError()])[0] is Outcome.REFUSED
    assert outcome_of_attempts([refused, timed_out]) == (Outcome.TIMED_OUT, timed_out)
