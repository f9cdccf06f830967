"""Three nats-servers on this machine that replicate their streams to each other."""

import asyncio
import socket
from pathlib import Path

import msgspec

from penstock.events.append import Unanswered, backoff
from penstock.events.connection import Connection, connect
from penstock.up import process
from penstock.up.nats import find_binary


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


class Cluster:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        ports = _free_ports(6)
        self._ports, self._routes = ports[:3], ports[3:]
        self.processes: list[process.Process] = []

    @property
    def urls(self) -> str:
        return ",".join(f"nats://127.0.0.1:{port}" for port in self._ports)

    async def start(self) -> None:
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self._routes)
        for number, (port, route) in enumerate(zip(self._ports, self._routes, strict=True)):
            directory = self._directory / f"n{number}"
            directory.mkdir()
            configuration = directory / "nats.conf"
            configuration.write_text(
                f"server_name: n{number}\n"
                f'listen: "127.0.0.1:{port}"\n'
                f'jetstream {{ store_dir: "{directory}/js", sync_interval: always }}\n'
                f'cluster {{ name: test, listen: "127.0.0.1:{route}", routes: [{routes}] }}\n'
            )
            self.processes.append(
                process.start(
                    f"n{number}",
                    [str(find_binary()), "-c", str(configuration)],
                    log=directory / "log",
                )
            )
        connection = await connect(self.urls, "probe")
        try:
            async with asyncio.timeout(30):
                await _wait_for_leader(connection)
        finally:
            await connection.close()

    async def kill_one(self, number: int) -> None:
        await self.processes[number].kill()

    async def leader_of(self, stream: str) -> int:
        connection = await connect(self.urls, "probe")
        try:
            answer = await connection.call(f"$JS.API.STREAM.INFO.{stream}")
            return int(msgspec.json.decode(answer.data)["cluster"]["leader"].removeprefix("n"))
        finally:
            await connection.close()

    async def stop(self) -> None:
        await asyncio.gather(*(one.kill() for one in self.processes))


async def _wait_for_leader(connection: Connection) -> None:
    for pause in backoff(0.05, 0.2):
        try:
            answer = await connection.call("$JS.API.INFO")
            if b'"error"' not in answer.data:
                return
        except Unanswered:
            pass
        await asyncio.sleep(pause)
