"""Numbers for Prometheus, one file per part of the server. Every family is described in docs/http.md; a test holds that."""
