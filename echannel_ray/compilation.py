"""Whether this package runs compiled (`setup.py` says what of it), and what the compiler is told of classes."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_extensions import mypyc_attr as mypyc_attr
else:
    T = TypeVar("T")

    def mypyc_attr(**attributes: bool) -> Callable[[T], T]:
        """Pass options for a class to mypyc; at run time this does nothing, so that installing needs no mypy."""
        return lambda decorated: decorated


_HOTTEST: Final = "echannel_ray.core.endpoint"


def is_compiled() -> bool:
    """Whether the hot modules of this process are compiled ones."""
    found = find_spec(_HOTTEST)
    return found is not None and (found.origin or "").endswith(tuple(EXTENSION_SUFFIXES))
