"""Refusals: what an error answer of the server means and what to do about it.

Each of these is given before a script's first write, so nothing happened. An answer that is not listed means that a script failed
midway: somebody else wrote into the namespace.
"""

from typing import Final

from redis.exceptions import ResponseError

REPLICA: Final = "READONLY"

ADVICE: Final = {
    "OOM": "the server is at its memory limit: raise maxmemory or remove keys",
    "MISCONF": "the server cannot write to its disk: see its log",
    "BUSY": "another script is running for long on the server: wait, or SCRIPT KILL it",
    "LOADING": "the server is still loading its data: wait",
    "NOREPLICAS": "the server wants more replicas than it has (min-replicas-to-write): start them or lower the setting",
    "NOPERM": "the user may not run this: allow it with ACL SETUSER",
    "NOAUTH": "the server wants a password: put one in the URL",
    "CLUSTERDOWN": "the cluster is down: see CLUSTER INFO",
    "MASTERDOWN": "the server is a replica without its primary",
    "MOVED": "the server is part of a cluster and another node owns the namespace: Holdfast wants a single primary",
    "TRYAGAIN": "the cluster is moving the namespace: Holdfast wants a single primary",
    "KILLED": "somebody killed the script, which can be done before its first write only: try again",
    "NOSCRIPT": "somebody flushes the server's scripts again and again",
}


def code_of(error: ResponseError) -> str:
    """The word the answer began with. Before version 7 a script's error has it in the middle of the text."""
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
