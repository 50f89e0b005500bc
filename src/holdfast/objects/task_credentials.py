"""Credentials for tasks: temporary ones, of a role of the object store, for the objects below one prefix alone.

The one rule: who has the URL of `TaskObjects` reads and writes below its prefix, and nothing else, until the credentials end. They
come from AssumeRole of AWS STS, or of a server that has it, with a session policy: what the role may do is cut to the prefix.
"""

import hashlib
import hmac
import html
import json
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import unquote, urlencode, urlsplit

from holdfast.objects.urls import ObjectsUrl, parse_objects_url
from holdfast.vocabulary.clock import Clock, RealClock
from holdfast.vocabulary.errors import InvalidError, UnavailableError, UsageError

LIFETIME_S: Final = 3_600
"""What every role allows."""
_RENEW_AFTER_S: Final = LIFETIME_S // 2
_TIMEOUT_S: Final = 10
_ROLE: Final = ("task_role", "sts_endpoint")
_KEYS: Final = ("access_key_id", "secret_access_key", "session_token")


@dataclass(frozen=True, slots=True)
class Keys:
    """Credentials of S3."""

    access_key_id: str
    secret_access_key: str
    session_token: str = ""


class TaskObjects:
    """The URL of object storage for tasks that read and write below a prefix. Without `task_role` it is the URL itself."""

    def __init__(self, url: str, prefix: str, *, clock: Clock | None = None) -> None:
        self._url, self._prefix, self._clock = url, prefix, clock or RealClock()
        self._assumed = ""
        self._renew_ms = 0

    def url(self) -> str:
        """Valid for half an hour at least. `UnavailableError`, `UsageError`: the role cannot be assumed."""
        if "task_role=" not in self._url:
            return self._url
        if self._clock.boot_ms() >= self._renew_ms:
            parsed = parse_objects_url(self._url)
            self._assumed = with_keys(parsed, assume_role(parsed, self._prefix, now_ms=self._clock.now_ms()))
            self._renew_ms = self._clock.boot_ms() + _RENEW_AFTER_S * 1_000
        return self._assumed


def with_keys(url: ObjectsUrl, keys: Keys) -> str:
    """The URL with these credentials instead of its own. They may not list the bucket, so opening does not check it."""
    kept = {name: value for name, value in url.options.items() if name not in (*_ROLE, *_KEYS)}
    found = {name: getattr(keys, name) for name in _KEYS if getattr(keys, name)}
    return url.parts._replace(query=urlencode({**kept, **found, "check": "0"})).geturl()


def session_policy(url: ObjectsUrl, prefix: str) -> str:
    """What tasks may do: get and put objects below a prefix."""
    below = "/".join(filter(None, (url.parts.netloc, unquote(url.parts.path).strip("/"), prefix)))
    actions = ["s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"]
    allowed = {"Effect": "Allow", "Action": actions, "Resource": [f"arn:aws:s3:::{below}*"]}
    return json.dumps({"Version": "2012-10-17", "Statement": [allowed]})


def assume_role(url: ObjectsUrl, prefix: str, *, now_ms: int) -> Keys:
    """Credentials for a prefix. Blocks."""
    role, region = url.options["task_role"], url.options.get("region", "us-east-1")
    own = Keys(**{name: url.options.get(name, "") for name in _KEYS})
    if not own.access_key_id or not own.secret_access_key:
        raise InvalidError("task_role", role, "used with access_key_id and secret_access_key in the URL")
    endpoint = url.options.get("sts_endpoint") or url.options.get("endpoint") or f"https://sts.{region}.amazonaws.com"
    call = {"Action": "AssumeRole", "Version": "2011-06-15", "RoleArn": role, "RoleSessionName": "holdfast-tasks"}
    policy = session_policy(url, prefix)
    body = urlencode({**call, "DurationSeconds": LIFETIME_S, "Policy": policy}).encode()
    headers = _signed(urlsplit(endpoint).netloc, body, own, region, datetime.fromtimestamp(now_ms / 1_000, UTC))
    request = urllib.request.Request(f"{endpoint.rstrip('/')}/", body, headers, method="POST")  # noqa: S310 (the operator's)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:  # noqa: S310
            text = response.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        code = _field(error.read().decode(errors="replace"), "Code")
        if error.code >= 500:
            raise UnavailableError(endpoint, f"AssumeRole: {error.code} {code}") from None
        raise UsageError(f"{endpoint} refuses AssumeRole of {role}: {error.code} {code}") from None
    except OSError as error:
        raise UnavailableError(endpoint, f"AssumeRole: {type(error).__name__}") from None
    found = Keys(_field(text, "AccessKeyId"), _field(text, "SecretAccessKey"), _field(text, "SessionToken"))
    if not found.access_key_id or not found.secret_access_key or not found.session_token:
        raise UsageError(f"{endpoint} answers AssumeRole without credentials")
    return found


def _field(text: str, name: str) -> str:
    found = re.search(f"<{name}>([^<]*)</{name}>", text)
    return html.unescape(found.group(1)) if found else ""


def _signed(host: str, body: bytes, keys: Keys, region: str, at: datetime) -> dict[str, str]:
    """The headers of a POST to /, with AWS's signature, version 4."""
    date, scope = f"{at:%Y%m%dT%H%M%SZ}", f"{at:%Y%m%d}/{region}/sts/aws4_request"
    headers = {"content-type": "application/x-www-form-urlencoded", "host": host, "x-amz-date": date}
    if keys.session_token:
        headers["x-amz-security-token"] = keys.session_token
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    canonical = f"POST\n/\n\n{lines}\n{names}\n{hashlib.sha256(body).hexdigest()}"
    text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{keys.secret_access_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"Credential={keys.access_key_id}/{scope}"
    return {
        **headers,
        "authorization": f"AWS4-HMAC-SHA256 {credential}, SignedHeaders={names}, Signature={signature}",
    }
