"""How many steps programs take at most."""

import pytest

from echannel_ray.programs.costs import MAX_COST, cost_of
from echannel_ray.programs.frontend import check
from tests.programs.records import TRADE, refused


def cost(text):
    return check(text, TRADE).cost


def test_the_cost_of_a_program_is_kept_in_it():
    program = check("price < 3 or price > 5", TRADE)
    assert program.cost == cost_of(program.body)
    assert 5 <= program.cost <= 20


def test_each_operation_costs_something():
    for more in ("price + 1 < 3", "-price < 3", "price < 3 + size", "not price < 3 and size", "price < 3 < size"):
        assert cost(more) > cost("price < 3")


def test_functions_cost_what_they_take():
    assert cost("sin(price)") - cost("floor(price)") == 19
    assert cost("pow(price, 0.5)") > cost("sqrt(price)")


def test_the_more_costly_branch_counts():
    cheap, dear = "x = price", "x = sin(price) + cos(price)"
    one = cost(f"if is_buy:\n    {cheap}\nelse:\n    {dear}\nreturn x")
    assert one == cost(f"if is_buy:\n    {dear}\nelse:\n    {cheap}\nreturn x")
    assert one < cost(f"{cheap}\n{dear}\nreturn x") + 2
    assert cost("sin(price) if is_buy else price") == cost("price if is_buy else sin(price)")


def test_loops_multiply():
    def loops(first, second):
        return cost(f"t = 0\nfor i in range({first}):\n    for j in range({second}):\n        t += 1\nreturn t")

    assert loops(10, 100) == pytest.approx(loops(10, 10) * 10, rel=0.2)
    assert loops(1000, 1000) > 1_000_000
    assert loops(0, 10) < 10


def test_a_loop_bounded_by_another_costs_its_most():
    text = "t = 0\nfor i in range(100):\n    for j in range(i):\n        t += 1\nreturn t"
    assert cost(text) > 100 * 99


def test_what_costs_too_much_is_refused():
    text = "for i in range({}):\n    for j in range(1000):\n        pass"
    assert cost(text.format(1000)) < MAX_COST
    assert "steps for an event: at most 1e+08 are allowed" in refused(text.format(10**6)).reason


def test_what_is_worked_out_once_is_counted_once():
    assert cost("size ** 64 > 1") < 30
    assert cost("1 < sin(price) < 2") < 2 * cost("sin(price) < 2")
