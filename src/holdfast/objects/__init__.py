"""Engines behind `contracts.objects`, and what is laid over them: retries, counters, a cache.

`urls.open_objects` opens an engine by URL with counters and retries on it; `caching.cached` goes on top. Every layer is itself an
`Objects`, so they compose. The only home of `obstore`; see `threads` for the one way it is called.
"""
