"""What an operator may set about security, for every gateway."""

from dataclasses import dataclass

from holdfast.security.principals import EVERYBODY, Principal, parse_principals
from holdfast.vocabulary.errors import InvalidError


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """`super_users`: principals that need no ACL, `User:NAME`, separated by semicolons."""

    super_users: str = ""

    def __post_init__(self) -> None:
        if EVERYBODY in parse_principals("super_users", self.super_users):
            raise InvalidError("super_users", str(EVERYBODY), "names: not everybody can be a super user")

    @property
    def principals(self) -> frozenset[Principal]:
        """The super users."""
        return parse_principals("super_users", self.super_users)
