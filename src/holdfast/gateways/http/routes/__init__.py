"""Routes, one file per family. Each is thin: it reads a request, calls one service, and shows what came of it."""
