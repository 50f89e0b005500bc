"""Lets a local Spark run its Python workers with the driver's interpreter, in any session: `format("holdfast")` is found by itself.

Spark looks for Python data sources, and starts workers, with PYSPARK_PYTHON, else with the first `python3` of the PATH. An
interpreter that is called by its path, in an environment that is not activated, gets another one, and the error is Spark's
DATA_SOURCE_NOT_FOUND. So PYSPARK_PYTHON is this interpreter while a SparkContext starts, and what it was afterwards.

The wheel brings a `.pth` file that calls `install` in every process of its Python, so this module imports nothing that is not
loaded anyway, and not PySpark. The one rule: what the operator set stays, and executors of a cluster are left alone: they have a
Python of their own, which is not to be found under the driver's path. HOLDFAST_NO_PYSPARK_HOOK=1 turns it off.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_OFF = "HOLDFAST_NO_PYSPARK_HOOK"
_WORKER_PYTHON = "PYSPARK_PYTHON"
_CONTEXT_MODULE = "pyspark.core.context"
_CONF_AT = 7  # of the positional arguments of SparkContext


def install() -> None:
    """Wait for PySpark to be imported, or wrap it at once where it already is. Installing twice is the same as once."""
    loaded = sys.modules.get(_CONTEXT_MODULE)
    if loaded is not None:
        _wrap(loaded)
    elif not any(isinstance(each, _ContextFinder) for each in sys.meta_path):
        sys.meta_path.insert(0, _ContextFinder())


def wants_driver_python(master: str, environment: "Mapping[str, str]") -> bool:
    """Whether a context on `master` ("": none was given) should run its workers with the driver's Python."""
    if environment.get(_OFF) or environment.get(_WORKER_PYTHON):
        return False
    if "PYSPARK_GATEWAY_PORT" in environment:  # spark-submit has started the JVM already
        return False
    return _is_local(master, environment)


def _is_local(master: str, environment: "Mapping[str, str]") -> bool:
    arguments = environment.get("PYSPARK_SUBMIT_ARGS", "").replace("=", " ").split()
    for option in ("--master", "spark.master"):
        if not master and option in arguments[:-1]:
            master = arguments[arguments.index(option) + 1].strip("'\"")
    master = master or environment.get("MASTER", "")
    if master:
        return master.startswith("local")
    # Somebody's own Spark may name its master in a file.
    return not any(environment.get(name) for name in ("SPARK_HOME", "SPARK_CONF_DIR")) and (
        "--properties-file" not in arguments
    )


class _ContextFinder:
    """Finds the module of SparkContext, once, for others to load."""

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name != _CONTEXT_MODULE:
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _WrappingLoader(spec.loader)  # type: ignore[assignment]
        return spec


class _WrappingLoader:
    """Another loader, and what is done once it has loaded."""

    def __init__(self, loader: "Any") -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def exec_module(self, module: "Any") -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _wrap(module)


def _wrap(module: "Any") -> None:
    context: Any = getattr(module, "SparkContext", None)
    if context is None or hasattr(context.__init__, "_holdfast"):
        return
    original = context.__init__
    from functools import wraps

    @wraps(original)
    def start(self: "Any", *args: "Any", **kwargs: "Any") -> None:
        environment = os.environ  # noqa: TID251 (the variable is Spark's, and its only door)
        if not wants_driver_python(_master_of(args, kwargs), environment):
            original(self, *args, **kwargs)
            return
        environment[_WORKER_PYTHON] = sys.executable
        try:
            original(self, *args, **kwargs)
        finally:
            environment.pop(_WORKER_PYTHON, None)

    start._holdfast = True  # type: ignore[attr-defined]
    context.__init__ = start


def _master_of(args: "tuple[Any, ...]", kwargs: "dict[str, Any]") -> str:
    conf = kwargs.get("conf") or (args[_CONF_AT] if len(args) > _CONF_AT else None)
    given = kwargs.get("master") or (args[0] if args else None) or (conf.get("spark.master") if conf else None)
    return str(given or "")
