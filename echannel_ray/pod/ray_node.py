"""How the Ray of this pod is, without Ray: its raylet and the control service (GCS) that it belongs to.

A client of Ray's would be a driver in each pod (75 MB in place of 14), and would end its process when the GCS stays
away. Both are gRPC servers, and one that works sends its settings to whoever begins HTTP/2: that is all that is asked
of them here. (One that hangs accepts connections too, in the kernel, and sends nothing.)
"""

from __future__ import annotations

import socket
from typing import Final

from echannel_ray.pod import processes

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # and no settings of ours
_ANSWER_SECONDS: Final = 1.0
_RAYLET: Final = "raylet"
_GCS_FLAG: Final = "--gcs-address="
_HOST_FLAG: Final = "--node_ip_address="


def problems(pid: int) -> list[str]:
    """What is wrong with the Ray that this process has started; nothing, where it works."""
    raylet = next((each for each in processes.descendants(pid) if processes.name(each) == _RAYLET), None)
    if raylet is None:
        return ["Ray has not started its raylet yet"]
    flags = processes.arguments(raylet)
    found = []
    host = _value(flags, _HOST_FLAG)
    ports = processes.listening_ports(raylet)
    if not ports or not all(answers(host, port) for port in ports):
        found.append(f"the raylet (process {raylet}) does not answer")
    gcs = _value(flags, _GCS_FLAG)
    gcs_host, _, gcs_port = gcs.rpartition(":")
    if not gcs_port.isdecimal() or not answers(gcs_host.strip("[]"), int(gcs_port)):
        found.append(f"the GCS at {gcs or 'an address that its raylet does not say'} does not answer")
    return found


def answers(host: str, port: int) -> bool:
    """Whether a process works behind this port."""
    try:
        with socket.create_connection((host, port), _ANSWER_SECONDS) as sock:
            sock.settimeout(_ANSWER_SECONDS)
            sock.sendall(_PREFACE)
            # With TLS it closes the connection, or sends an alert: it works as well.
            sock.recv(9)
    except ConnectionResetError:
        return True
    except OSError:
        return False
    return True


def _value(flags: list[str], name: str) -> str:
    return next((flag.removeprefix(name) for flag in flags if flag.startswith(name)), "")
