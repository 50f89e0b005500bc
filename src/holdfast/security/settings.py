"""What an operator may set about security, for every gateway."""

from dataclasses import dataclass, replace

from holdfast.security.attempt_limits import AttemptSettings
from holdfast.security.principals import EVERYBODY, Principal, parse_principals
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import KIB, MIB, check_at_least, check_between


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """Logins of every gateway, and the audit log.

    `super_users`: principals that need no ACL, `User:NAME`, separated by semicolons. `cache_ms`: how long a key or password that
    was checked needs no check; what is revoked or changed ends at once. `session_ms`: how long a browser stays logged in.
    `login_failures_max`: so many failed logins of a user within `login_window_ms` lock it for `login_lock_ms`;
    `login_address_failures_max`: so many from an address. It is more, so that one stale password locks nobody else there.
    `bootstrap_token_file`: has the token with which the first administrator is made; without it one is made up and printed once.
    `audit`: a file for audit lines, `stderr`, or `off`. `audit_bytes_max`: from then on the file is continued in a new one, and the
    one before the last is deleted. `audit_refusals_per_s`: further refusals of a second are counted, not written.
    """

    super_users: str = ""
    cache_ms: int = 60_000
    session_ms: int = 900_000
    login_failures_max: int = 10
    login_address_failures_max: int = 50
    login_window_ms: int = 60_000
    login_lock_ms: int = 60_000
    bootstrap_token_file: str = ""
    audit: str = "stderr"
    audit_bytes_max: int = 64 * MIB
    audit_refusals_per_s: int = 20

    def __post_init__(self) -> None:
        if EVERYBODY in parse_principals("super_users", self.super_users):
            raise InvalidError("super_users", str(EVERYBODY), "names: not everybody can be a super user")
        check_between("cache_ms", self.cache_ms, 0, 3_600_000)
        check_between("session_ms", self.session_ms, 1_000, 86_400_000)
        for name in ("login_failures_max", "login_address_failures_max", "login_window_ms", "login_lock_ms"):
            check_at_least(name, getattr(self, name), 1)
        check_at_least("audit_refusals_per_s", self.audit_refusals_per_s, 1)
        check_at_least("audit_bytes_max", self.audit_bytes_max, 64 * KIB)

    @property
    def principals(self) -> frozenset[Principal]:
        """The super users."""
        return parse_principals("super_users", self.super_users)

    @property
    def user_attempts(self) -> AttemptSettings:
        """How often logins of a user may fail."""
        return AttemptSettings(
            failures_max=self.login_failures_max, window_ms=self.login_window_ms, lock_ms=self.login_lock_ms
        )

    @property
    def address_attempts(self) -> AttemptSettings:
        """How often logins from an address may fail."""
        return replace(self.user_attempts, failures_max=self.login_address_failures_max)
