"""An issuer of OAuth tokens on loopback: keys, tokens, a JWKS and a token endpoint."""

import json
import threading
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from holdfast.vocabulary.clock import RealClock

ISSUER, AUDIENCE = "https://issuer.test", "holdfast"
CLIENT_SECRET = "s3cret"


@cache
def rsa_key(number: int = 0) -> rsa.RSAPrivateKey:
    """Making one takes long: tests share them."""
    return rsa.generate_private_key(public_exponent=65_537, key_size=2_048)


@cache
def ec_key(number: int = 0) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


class Issuer:
    """Signs tokens. `url`: where its keys and its token endpoint are, while `serving`."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {"ec": ec_key()}
        self.url = ""
        self.jwks_requests = 0
        self.away = False
        self.lifetime_s = 300

    def jwks(self) -> dict[str, Any]:
        listed = []
        for name, key in self.keys.items():
            kind: Any = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
            listed.append({**kind.to_jwk(key.public_key(), as_dict=True), "kid": name, "use": "sig"})
        return {"keys": listed}

    def claims(self, name: str = "ann", now_s: float | None = None, **changed: Any) -> dict[str, Any]:
        now_s = RealClock().now_ms() / 1_000 if now_s is None else now_s
        claims = {"sub": name, "iss": ISSUER, "aud": AUDIENCE, "iat": int(now_s), "exp": int(now_s + self.lifetime_s)}
        return {key: value for key, value in {**claims, **changed}.items() if value is not None}

    def token(self, name: str = "ann", *, key: str = "ec", now_s: float | None = None, **changed: Any) -> str:
        signer = self.keys[key]
        algorithm = "RS256" if isinstance(signer, rsa.RSAPrivateKey) else "ES256"
        claims = self.claims(name, now_s, **changed)
        return jwt.encode(claims, signer, algorithm, headers={"kid": key, "typ": "at+jwt"})

    @contextmanager
    def serving(self) -> Iterator["Issuer"]:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.jwks_requests += 1
                self.answer(503 if issuer.away else 200, issuer.jwks())

            def do_POST(self) -> None:
                """Client credentials: the client's id is the subject."""
                self.rfile.read(int(self.headers.get("content-length", 0)))
                kind, _, given = self.headers.get("authorization", "").partition(" ")
                client, _, secret = b64decode(given).decode().partition(":") if kind == "Basic" else ("", "", "")
                if secret != CLIENT_SECRET:
                    self.answer(401, {"error": "invalid_client"})
                    return
                lifetime = {"token_type": "Bearer", "expires_in": issuer.lifetime_s}
                self.answer(200, {"access_token": issuer.token(client), **lifetime})

            def answer(self, status: int, body: object) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            server.daemon_threads = True
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
            thread.start()
            self.url = f"http://127.0.0.1:{server.server_address[1]}"
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()


def unsecured(claims: dict[str, Any], header: dict[str, Any] | None = None) -> str:
    """A token that nobody signed."""
    parts = ({"alg": "none"} if header is None else header, claims)
    return ".".join(urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in parts) + "."


def bearer(token: str, authzid: str = "") -> bytes:
    """A client's message, by the letter of RFC 7628."""
    acting_for = f"a={authzid}" if authzid else ""
    return f"n,{acting_for},\x01auth=Bearer {token}\x01\x01".encode()
