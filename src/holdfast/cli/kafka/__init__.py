"""What stands behind `holdfast topic|produce|consume|group`: a client of any Kafka bootstrap address.

The one rule: `options`, `positions`, `records`, `shown` and `stopping` import no client, so that `--help` does not pay for
it; the other modules do, and the commands import those only when they run.
"""
