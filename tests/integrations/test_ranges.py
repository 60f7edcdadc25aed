"""Ranges of logs: what an epoch takes, and how it is split."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from echannel_ray.integrations.spark.ranges import Range, capped, ends, split, stream_offset, within

_marks = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 50), min_size=1)


@given(_marks, _marks, st.integers(1, 60))
def test_an_epoch_takes_as_many_rows_as_it_may_and_no_more(start, further, max_rows):
    stop = {log: start.get(log, 0) + rows for log, rows in further.items()}
    reached = within(start, stop, max_rows)
    assert reached.keys() == stop.keys()
    assert all(start.get(log, 0) <= mark <= stop[log] for log, mark in reached.items())
    rows = sum(mark - start.get(log, 0) for log, mark in reached.items())
    assert rows == min(max_rows, sum(further.values()))


@given(_marks, _marks, st.integers(1, 20))
def test_ranges_are_all_that_is_between_each_once(start, further, rows_per_partition):
    stop = {log: start.get(log, 0) + rows for log, rows in further.items()}
    ranges = list(split(start, stop, rows_per_partition))
    assert all(0 < each.stop - each.start <= rows_per_partition for each in ranges)
    for log, mark in stop.items():
        events = [event for each in ranges if each.log == log for event in range(each.start, each.stop)]
        assert events == list(range(start.get(log, 0), mark))


def test_a_log_that_has_come_since_is_read_from_its_beginning():
    assert list(split({"a": 5}, {"a": 5, "b": 2}, 10)) == [Range("b", 0, 2)]


def test_a_log_that_is_gone_has_no_end():
    assert ends({"a": 5, "b": 7}, {"b": (2, 9), "c": (0, 1)}) == {"b": 9, "c": 1}


def test_an_end_is_not_before_where_we_are():
    assert ends({"b": 7}, {"b": (2, 6)}) == {"b": 7}


def test_what_comes_after_the_start_of_a_run_waits_for_the_next():
    assert capped({"a": 5, "b": 7, "c": 1}, {"a": 4, "b": 9}) == {"a": 4, "b": 7}


def test_equal_offsets_are_equal_as_text():
    assert list(stream_offset("g", {"b": 1, "a": 2})["logs"]) == ["a", "b"]
