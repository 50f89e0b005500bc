"""Large imports beside the loop come one after another."""

import threading

from holdfast.gateways.kafka.control import learn
from holdfast.vocabulary.importing import importing


def test_kio_is_not_imported_while_another_thread_imports() -> None:
    other = threading.Thread(target=learn.__wrapped__)
    with importing:
        other.start()
        other.join(0.2)
        assert other.is_alive()
    other.join(60)
    assert not other.is_alive()
