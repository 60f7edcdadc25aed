"""A gateway over logs on disk, without Ray, for tests with Spark."""

from __future__ import annotations

from pathlib import Path

from echannel_ray.gateway.client import GatewayClient
from tests.gateway.processes import Server


class LocalGateway(Server):
    """It runs from the beginning, and has the same endpoint and the same logs each time that it is started again."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.start()

    def restart(self, fault: str = "") -> None:
        """Kill it, and start a successor, which may have a fault that will kill it in turn."""
        self.end()
        self.start(fault)

    def client(self) -> GatewayClient:
        """A client of it."""
        return GatewayClient(self.endpoint)

    def values(self, channel: str, column: str = "id") -> list[int]:
        """A column of all that is retained, in the logs' order."""
        with self.client() as client:
            return [
                value
                for log, (first, stop) in client.offsets(channel).items()
                for batch in client.read(channel, log, first, stop)
                for value in batch.column(column).to_pylist()
            ]
