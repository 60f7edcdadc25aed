"""Records for consumers that have no class for them."""

from __future__ import annotations

from typing import Any


class Record(dict[str, Any]):
    """Field values by name, `record["price"]` or `record.price`; nested records are such too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"a record has no field {name!r}: it has {', '.join(self) or 'none'}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(f"a record has no field {name!r}") from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    def __repr__(self) -> str:
        return f"Record({', '.join(f'{name}={value!r}' for name, value in self.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would look for `__getstate__` and the like among the fields.
        return Record, (dict(self),)
