"""Large imports beside the loop come one after another."""

import threading

from holdfast.kafka.codec import import_kio
from holdfast.vocabulary.import_lock import import_lock


def test_kio_is_not_imported_while_another_thread_imports() -> None:
    other = threading.Thread(target=import_kio.__wrapped__)
    with import_lock:
        other.start()
        other.join(0.2)
        assert other.is_alive()
    other.join(60)
    assert not other.is_alive()
