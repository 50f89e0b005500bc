"""The C extension (`src/_native`) where it was built; None elsewhere, where its Python equivalents are used."""

try:
    import holdfast._native as native
except ImportError:  # no compiler when the package was installed
    native = None  # type: ignore[assignment]

__all__ = ["native"]
