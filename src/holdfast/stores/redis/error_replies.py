"""Error replies of the server: what each means and what to do about it.

Each of these is sent before a script's first write, so nothing was done. An error that is not listed means that a script failed
midway: another program wrote to the namespace.
"""

from typing import Final

from redis.exceptions import ResponseError

REPLICA: Final = "READONLY"

ADVICE: Final = {
    "OOM": "the server is at its memory limit: raise maxmemory or remove keys",
    "MISCONF": "the server cannot write to its disk: check its log",
    "BUSY": "a script has been running for long: wait, or SCRIPT KILL it",
    "LOADING": "the server is still loading its data: wait",
    "NOREPLICAS": "fewer replicas than min-replicas-to-write: start them or lower the setting",
    "NOPERM": "permission denied: allow the command with ACL SETUSER",
    "NOAUTH": "password required: put one into the URL",
    "CLUSTERDOWN": "the cluster is down: check CLUSTER INFO",
    "MASTERDOWN": "the server is a replica without its primary",
    "MOVED": "the server is part of a cluster and another node owns the namespace: Holdfast needs a single primary",
    "TRYAGAIN": "the cluster is moving the namespace: Holdfast needs a single primary",
    "KILLED": "the script was killed before its first write: retry",
    "NOSCRIPT": "the server's scripts are flushed repeatedly",
}


def code_of(error: ResponseError) -> str:
    """The reply's error code. Before version 7 a script's error has it in the middle of the text."""
    code = getattr(error, "status_code", None)
    text = str(error)
    if isinstance(code, str) and code != "ERR":
        return code
    if "Script killed" in text:
        return "KILLED"
    words = {word.strip("-:,.") for word in text.split()}
    for known in (REPLICA, *ADVICE):
        if known in words:
            return known
    return "ERR"
