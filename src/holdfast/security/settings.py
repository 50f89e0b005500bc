"""What an operator may set about security, for every gateway."""

from dataclasses import dataclass

from holdfast.security.principals import Principal, parse_principals


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """`super_users`: principals that need no ACL, `User:NAME`, separated by semicolons."""

    super_users: str = ""

    def __post_init__(self) -> None:
        parse_principals("super_users", self.super_users)

    @property
    def principals(self) -> frozenset[Principal]:
        """The super users."""
        return parse_principals("super_users", self.super_users)
