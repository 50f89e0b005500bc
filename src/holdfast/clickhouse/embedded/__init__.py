"""An embedded ClickHouse: chDB in a process of its own, behind ClickHouse's HTTP interface.

It runs on the standard library's threading server: every call of the engine blocks a thread anyway, so an event loop would only
dispatch, and there is nothing more to install.
"""
