"""A lock that goes to who has waited longest."""

import threading

import pytest

from echannel_ray.logs.database import Turns


def waiting(turns, count):
    """Wait until so many wait for it."""
    while len(turns._waiting) < count:
        threading.Event().wait(0.001)


def test_it_goes_round_in_the_order_of_asking():
    turns, order = Turns(), []

    def take(name):
        with turns:
            order.append(name)

    threads = [threading.Thread(target=take, args=(name,)) for name in range(5)]
    with turns:
        for count, thread in enumerate(threads, 1):
            thread.start()
            waiting(turns, count)
        assert order == []
    for thread in threads:
        thread.join(60)
    assert order == list(range(5))


def test_who_gives_it_back_and_asks_again_comes_last():
    turns, order = Turns(), []

    def take():
        with turns:
            order.append("other")

    thread = threading.Thread(target=take)
    with turns:
        thread.start()
        waiting(turns, 1)
    with turns:
        order.append("again")
    thread.join(60)
    assert order == ["other", "again"]


def test_only_one_has_it():
    turns, inside, most = Turns(), [], []

    def take():
        for _ in range(2000):
            with turns:
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert max(most) == 1
    assert len(most) == 8000


def test_an_error_gives_it_back():
    turns = Turns()
    with pytest.raises(KeyError), turns:
        raise KeyError
    with turns:
        pass
