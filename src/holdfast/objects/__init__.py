"""Object storage engines behind `contracts.objects`, and the layers above them: retries, counters, a cache.

`urls.open_objects` opens an engine by URL with counters and retries; `cache.cached` goes on top. Every layer is an `Objects`, so
they compose. The only package that imports `obstore`; see `io_threads` for how it is called.
"""
