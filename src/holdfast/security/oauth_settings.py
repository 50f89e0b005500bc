"""What an operator may set about OAuth tokens: whose they are, and what they have to say."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import check_between, check_one_of

# Asymmetric ones alone. With a key that is public, an HMAC could be made by anybody.
ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
ANY: Final = "*"
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthSettings:
    """`jwks`: the issuer's keys, as a URL (https; http on loopback alone), a file, or the JSON itself. `jwks_ca`: authorities (PEM)
    of that URL's server, if they are not the system's.

    `issuer` and `audience`: what a token has to name; the audience is one of several, separated by commas. `*`: any.
    `algorithms`: which signatures count, separated by commas. `principal_claim`: the claim with the user's name.
    `skew_ms`: how far the issuer's clock may be off. `refresh_ms`: how often keys are fetched; a token with an unknown key has
    them fetched at once, but no sooner than `refresh_min_ms` after the last time.
    `unsecured`: for tests. Tokens without a signature are accepted, and no others: everybody may be anybody.
    """

    jwks: str = ""
    jwks_ca: str = ""
    issuer: str = ""
    audience: str = ""
    algorithms: str = ",".join(ALGORITHMS)
    principal_claim: str = "sub"
    skew_ms: int = 30_000
    refresh_ms: int = 3_600_000
    refresh_min_ms: int = 10_000
    unsecured: bool = False

    def __post_init__(self) -> None:
        for name in self.allowed_algorithms:
            check_one_of("algorithms", name, ALGORITHMS)
        if not self.allowed_algorithms:
            raise InvalidError("algorithms", "", "one or more of " + ", ".join(ALGORITHMS))
        if not self.principal_claim:
            raise InvalidError("principal_claim", "", "the name of a claim")
        check_between("skew_ms", self.skew_ms, 0, 600_000)
        check_between("refresh_min_ms", self.refresh_min_ms, 100, 3_600_000)
        check_between("refresh_ms", self.refresh_ms, self.refresh_min_ms, 7 * 86_400_000)
        if self.jwks and self.unsecured:
            raise InvalidError("unsecured", True, "false: there are keys to check tokens with (jwks)")
        if self.jwks:
            self._check_source()

    def _check_source(self) -> None:
        for name in ("issuer", "audience"):
            if not getattr(self, name):
                raise InvalidError(name, "", f"what tokens must have as their {name}, or * for any")
        if self.jwks.startswith("http://") and urlsplit(self.jwks).hostname not in _LOOPBACK:
            raise InvalidError("jwks", self.jwks, "https: whoever can change the keys on their way can be anybody")

    @property
    def is_configured(self) -> bool:
        """Whether there is anything that tokens are checked with."""
        return bool(self.jwks) or self.unsecured

    @property
    def allowed_algorithms(self) -> tuple[str, ...]:
        """The algorithms of signatures."""
        return tuple(each.strip() for each in self.algorithms.split(",") if each.strip())

    @property
    def audiences(self) -> frozenset[str]:
        """The audiences that count; empty: any."""
        named = frozenset(each.strip() for each in self.audience.split(",") if each.strip())
        return frozenset() if ANY in named else named
