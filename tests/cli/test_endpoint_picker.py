"""`gantree endpoint-picker` as a process, and without gRPC."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import CommandLine

TABLE = """
services:
  - service: chat
    replicas: [{replica: chat.1, host: 10.0.0.1, port: 8000}]
"""


def test_it_listens_until_it_is_told_to_end(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="grpcio is not installed")
    table = tmp_path / "table.yaml"
    table.write_text(TABLE)
    words = ["endpoint-picker", "--table", str(table), "--listen", "127.0.0.1:0", "--drain", "1s"]
    command = [sys.executable, "-m", "gantree.cli", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        port = running.stdout.readline().rpartition(":")[2].strip()
        asked = subprocess.run(
            [sys.executable, "-c", CLIENT, port], capture_output=True, text=True, check=True
        )
        running.terminate()
        assert running.wait() == 0
    assert asked.stdout.strip() == "10.0.0.1:8000"


CLIENT = """
import sys, grpc
from gantree.routing.endpoint_picker.messages import SERVICE, ProcessingRequest, ProcessingResponse
head = ProcessingRequest(request_headers={"end_of_stream": True})
header = head.request_headers.headers.headers.add()
header.key, header.raw_value = "x-gantree-service", b"chat"
with grpc.insecure_channel(f"127.0.0.1:{sys.argv[1]}") as channel:
    ask = channel.stream_stream(
        f"/{SERVICE}/Process",
        request_serializer=ProcessingRequest.SerializeToString,
        response_deserializer=ProcessingResponse.FromString,
    )
    (answer,) = ask(iter([head]))
    (option,) = answer.request_headers.response.header_mutation.set_headers
    print(option.header.raw_value.decode())
"""


def test_without_grpc_it_says_how_to_get_it(
    gantree: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    monkeypatch.delitem(sys.modules, "gantree.routing.endpoint_picker.server", raising=False)
    told = gantree("endpoint-picker")
    assert told.code == 2
    assert "pip install 'gantree[endpoint-picker]'" in told.err


def test_a_certificate_needs_its_key(gantree: CommandLine, tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="grpcio is not installed")
    told = gantree("endpoint-picker", "--tls-cert", tmp_path / "cert.pem")
    assert told.code == 2
    assert "--tls-cert and --tls-key belong together" in told.err
