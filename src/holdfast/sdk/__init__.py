"""The public door: what `import holdfast` offers, in the words of its user.

The one rule: it adds no behaviour of its own. It binds a store, a clock and a random source once, and calls the kernel and the
registry with them. Import these names from `holdfast`, which loads them when they are first used.
"""

from holdfast.sdk.connection import Holdfast, connect
from holdfast.sdk.lease import Held, Lease
from holdfast.sdk.registry import Registry
from holdfast.sdk.session import Session

__all__ = ["Held", "Holdfast", "Lease", "Registry", "Session", "connect"]
