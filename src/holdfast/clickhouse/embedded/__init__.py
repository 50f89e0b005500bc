"""An embedded ClickHouse: chDB in a process of its own, behind ClickHouse's HTTP interface.

The standard library's threading server carries it: each call of the engine blocks a thread anyway, so an event loop would only
hand requests on, and there is nothing more to install.
"""
