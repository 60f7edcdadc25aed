"""One module per experiment; each states its question in its docstring and has `run(plan) -> rows`."""
