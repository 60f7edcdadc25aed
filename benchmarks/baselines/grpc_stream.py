"""grpcio: a bidirectional stream between two processes, straight from one to the other by TCP on the loopback.

As its guide to performance recommends for Python: a stream that is kept, and asyncio rather than the synchronous
stubs, whose streams need threads. The messages are the bytes of the records as they are. That flatters it: nothing is
encoded at either end. Without generated code: generic handlers whose serialisers change nothing.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from itertools import cycle, islice
from multiprocessing.connection import Connection
from typing import Any

from echannel_ray.benchmarks import extras
from echannel_ray.benchmarks.harness.child import Child, requests
from echannel_ray.benchmarks.harness.closing import Closing

MISSING = None if extras.is_installed("grpc") else extras.not_installed("grpcio")
SERVICE = "records.Records"
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def server(pipe: Connection) -> None:
    """Echo messages, or count them and tell the count at their end."""
    # Not at the top: this module is imported where grpcio is missing, too. It has no annotations.
    import grpc  # type: ignore[import-untyped,unused-ignore]

    async def echo(messages: Any, _: Any) -> Any:
        async for message in messages:
            yield message

    async def count(messages: Any, _: Any) -> Any:
        counted = 0
        async for _message in messages:
            counted += 1
        yield str(counted).encode()

    async def serve() -> None:
        answers = {"Echo": echo, "Count": count}
        methods = {name: grpc.stream_stream_rpc_method_handler(answer) for name, answer in answers.items()}
        serving = grpc.aio.server(options=UNLIMITED)
        serving.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        port = serving.add_insecure_port("127.0.0.1:0")
        await serving.start()
        pipe.send(f"127.0.0.1:{port}")
        try:
            await asyncio.to_thread(pipe.recv)  # until the other end closes
        finally:
            await serving.stop(None)

    asyncio.run(serve())


def client(pipe: Connection, address: str) -> None:
    """Do what the requests say, and answer each with the seconds that it took."""
    import grpc

    async def ask() -> None:
        async with grpc.aio.insecure_channel(address, options=UNLIMITED) as channel:
            echo = channel.stream_stream(f"/{SERVICE}/Echo")()
            for request, messages, times in requests(pipe):
                began = time.perf_counter()
                if request == "echo":
                    for message in islice(cycle(messages), times):
                        await echo.write(message)
                        await echo.read()
                else:
                    count = channel.stream_stream(f"/{SERVICE}/Count")()
                    for message in islice(cycle(messages), times):
                        await count.write(message)
                    await count.done_writing()
                    if int(await count.read()) != times:
                        raise AssertionError("messages were lost")
                pipe.send(time.perf_counter() - began)

    asyncio.run(ask())


class GrpcStream(Closing):
    """The two processes."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        serving = self._stack.enter_context(Child(server))
        self._client = self._stack.enter_context(Child(client, serving.answer()))
        self.source_pids = [self._client.pid]
        self.other_pids = [serving.pid]

    def round_trip_seconds(self, messages: list[bytes], count: int) -> float:
        """Seconds from writing a message until the server's echo of it is here."""
        return float(self._client.ask(("echo", messages, count))) / count

    def rate(self, messages: list[bytes], count: int) -> float:
        """Messages a second, until the server has had them all."""
        return count / float(self._client.ask(("count", messages, count)))

    def close(self) -> None:
        """End the processes."""
        self._stack.close()
