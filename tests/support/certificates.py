"""Certificates for tests of TLS on loopback."""

import shutil
import subprocess
from pathlib import Path

import pytest


def certificate(directory: Path, name: str) -> tuple[Path, Path]:
    """A self-signed certificate for loopback, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
    made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    named = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([openssl, *made, *named, *files], check=True, capture_output=True)
    return certificate, key


def issued_certificate(directory: Path, name: str) -> tuple[Path, Path, Path]:
    """A private authority, and a certificate of it for loopback with its key: some clients take no authority for a server."""
    authority, authority_key = certificate(directory, f"{name}-ca")
    issued, key = directory / f"{name}.pem", directory / f"{name}.key"
    made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    signed = ["-CA", str(authority), "-CAkey", str(authority_key), "-addext", "basicConstraints=critical,CA:FALSE"]
    named = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(issued)]
    subprocess.run(["openssl", *made, *signed, *named, *files], check=True, capture_output=True)
    return authority, issued, key
