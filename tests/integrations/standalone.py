"""A cluster of Spark on this machine, with workers that have addresses of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pyspark

from tests.integrations.drivers import environment
from tests.integrations.faulty import wait_for

_JARS = Path(pyspark.__file__).parent / "jars"
_DEPLOY = "org.apache.spark.deploy"


class StandaloneCluster:
    """A master and a worker of one core at each address. Spark never tries a task twice at once on one host."""

    def __init__(self, directory: Path, addresses: tuple[str, ...] = ("127.0.0.1", "127.0.0.2")) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            master = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
            log = self._start("master.Master", *master)
            self.url = self._found(log, r"Starting Spark master at (spark://\S+)")
            workers = [
                self._start(
                    "worker.Worker", "--host", each, "--cores", "1", "--memory", "1g", "--webui-port", "0",
                    "--work-dir", str(directory / each), self.url,
                )
                for each in addresses
            ]  # fmt: skip
            for each in workers:
                self._found(each, r"Successfully registered with (master)")
        except BaseException:
            self.stop()
            raise

    def _start(self, name: str, *arguments: str) -> Path:
        log = self._directory / f"{len(self._processes)}.log"
        settings = self._directory / "log4j2.properties"
        settings.write_text(
            "rootLogger.level = info\nrootLogger.appenderRef.stdout.ref = console\nappender.console.type = Console\n"
            "appender.console.name = console\nappender.console.layout.type = PatternLayout\n"
            "appender.console.layout.pattern = %m%n\n"
        )
        inside = ("java.nio", "sun.nio.ch", "java.lang", "java.util")
        opened = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in inside]  # as Spark's own scripts do
        logging = f"-Dlog4j2.configurationFile={settings}"
        command = ["java", "-Xmx256m", *opened, logging, "-cp", f"{_JARS}/*", f"{_DEPLOY}.{name}"]
        home = {"SPARK_HOME": str(_JARS.parent), "SPARK_SCALA_VERSION": _scala_version()}
        environ = {**os.environ, **environment(), **home}
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*command, *arguments], stdout=out, stderr=subprocess.STDOUT, env=environ, start_new_session=True
            )
        self._processes.append(process)
        return log

    @staticmethod
    def _found(log: Path, pattern: str) -> str:
        """What a process says of itself, when it says so."""
        wait_for(lambda: re.search(pattern, log.read_text()), pattern)
        found = re.search(pattern, log.read_text())
        assert found is not None
        return found[1]

    def stop(self) -> None:
        """End the workers, whose executors go with them, and the master."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(30)
            finally:
                process.kill()


def _scala_version() -> str:
    """Which Spark's scripts would find out."""
    (core,) = _JARS.glob("spark-core_*.jar")
    return core.name.split("_")[1].split("-")[0]
