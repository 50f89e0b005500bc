"""Values that a column's type takes, and what is stored of each."""

import math
from decimal import Decimal
from typing import Any

DAY = 20_407  # 2025-11-15
SECONDS = DAY * 86_400
FITS: list[tuple[str, Any, Any]] = [
    ("Bool", True, True),
    ("Bool", 1, True),
    ("Bool", "false", False),
    ("Int64", 5, 5),
    ("Int64", True, 1),
    ("Int64", 5.0, 5),
    ("Int64", "-12", -12),
    ("UInt64", 2**64 - 1, 2**64 - 1),
    ("Float64", 1, 1.0),
    ("Float64", "1.5e3", 1500.0),
    ("Float64", "Infinity", math.inf),
    ("Float64", 2**60 + 1, float(2**60)),
    ("Decimal(6, 2)", "1234.50", Decimal("1234.5")),
    ("Decimal(6, 2)", 1234.5, Decimal("1234.5")),
    ("Decimal(6, 2)", "1.5000", Decimal("1.50")),
    ("Decimal(6, 2)", "1.2e3", Decimal(1200)),
    ("Decimal(3, 1)", 0.1, Decimal("0.1")),
    ("Decimal(4, 2)", "0e99", Decimal(0)),
    ("String", "a", "a"),
    ("String", 5, "5"),
    ("String", 1.5, "1.5"),
    ("String", True, "true"),
    ("String", {"a": [1, None]}, '{"a":[1,null]}'),
    ("String", 2**70, str(2**70)),
    ("String", math.nan, "NaN"),
    ("Date", "2025-11-15", DAY),
    ("Date", "2025-11-15T23:59:59Z", DAY),
    ("Date", SECONDS, DAY),
    ("DateTime", "2025-11-15", SECONDS),
    ("DateTime", "2025-11-15T02:00:00.9+02:00", SECONDS),
    ("DateTime64(3)", "2025-11-15T00:00:00.1239Z", SECONDS * 1000 + 123),
    ("DateTime64(3)", SECONDS, SECONDS * 1000),
    ("DateTime64(3)", SECONDS * 1000 + 7, SECONDS * 1000 + 7),
    ("DateTime64(3)", str(SECONDS), SECONDS * 1000),
    ("DateTime64(3)", SECONDS + 0.123, SECONDS * 1000 + 123),
    ("DateTime64(1)", "2025-11-15T00:00:00.19Z", SECONDS * 1000 + 100),
    ("DateTime64(9)", "2025-11-15T00:00:00.123456789Z", SECONDS * 10**9 + 123_456_789),
    ("UUID", "61F0C404-5CB3-11E7-907B-A6006AD3DBA0", "61f0c404-5cb3-11e7-907b-a6006ad3dba0"),
    ("UUID", "61f0c4045cb311e7907ba6006ad3dba0", "61f0c404-5cb3-11e7-907b-a6006ad3dba0"),
    ("Array(Int64)", [1, "2"], [1, 2]),
    ("Array(Nullable(Int64))", [1, None], [1, None]),
    ("Map(String, Int64)", {"a": "1"}, [("a", 1)]),
    ("Nullable(Int64)", None, None),
    ("LowCardinality(Nullable(String))", None, None),
]
