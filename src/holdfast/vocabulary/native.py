"""The C extension (`src/_native`), where it was built; None elsewhere, and then its twins in Python do the work."""

try:
    import holdfast._native as native
except ImportError:  # no compiler when the package was installed
    native = None  # type: ignore[assignment]

__all__ = ["native"]
