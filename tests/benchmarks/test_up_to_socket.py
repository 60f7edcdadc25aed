"""The parts of a producer that a benchmark puts together by itself."""

from __future__ import annotations

import numpy as np

from echannel_ray.benchmarks.harness.up_to_socket import Sending


def test_arrays_are_sent_and_nothing_of_them_stays():
    dtype = np.dtype([("a", "f8"), ("b", "i4")])
    sending = Sending(dtype)
    assert sending.seconds(np.zeros(100, dtype), 3) > 0
    assert sending._core.packs_sent == 3
    assert not sending._core.out
    assert not sending._stream.route.flow.kept
