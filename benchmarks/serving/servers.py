"""Services whose replicas are model servers that others wrote: the job file of each."""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Server:
    """A model server: its roles as (name, GPUs, command), the first of which listens at $PORT, and when it is ready."""

    name: str
    roles: tuple[tuple[str, int, str], ...]
    ready: str
    slots: int


DISCOVERY = "--discovery-backend file --request-plane tcp --event-plane zmq"
DYNAMO = "export DYN_FILE_KV=@RUN@/kv-$GANTREE_JOB-$GANTREE_ATTEMPT HF_HUB_OFFLINE=1; exec @HOME@/dynamo/bin/python -m"
SERVERS = (
    Server(
        "guidellm",
        (
            (
                "server",
                1,
                "exec @HOME@/guidellm/bin/guidellm mock-server --host 127.0.0.1 --port $PORT --model guidellm"
                " --ttft-ms 60 --ttft-ms-std 10 --itl-ms 10 --output-tokens 16 --max-concurrent-requests 8",
            ),
        ),
        "/health",
        8,
    ),
    Server(
        "llama",
        (
            (
                "server",
                1,
                "exec @HOME@/llama/bin/python -m llama_cpp.server --host 127.0.0.1 --port $PORT"
                " --model @HOME@/tiny.gguf --model_alias llama --n_threads 1 --n_ctx 512 --interrupt_requests false",
            ),
        ),
        "/v1/models",
        1,
    ),
    Server(
        "dynamo",
        (
            (
                "frontend",
                0,
                f"{DYNAMO} dynamo.frontend --http-host 127.0.0.1 --http-port $PORT {DISCOVERY}",
            ),
            (
                "engine",
                1,
                f"{DYNAMO} dynamo.mocker --model-path @HOME@/tiny --model-name dynamo {DISCOVERY}",
            ),
        ),
        "/v1/models/dynamo",
        8,
    ),
)


def service_file(server: Server, home: Path, run: Path, most: int) -> str:
    """The job file of a service of 2 to `most` replicas. home has the environments, run is for what they write."""
    roles = []
    for name, gpus, command in server.roles:
        words = command.replace("@HOME@", str(home)).replace("@RUN@", str(run))
        role = {"role": name, "members": 1, "each": {"gpus": gpus}, "run": ["sh", "-c", words]}
        roles.append(role)
    return f"""
kind: service
name: {server.name}
queue: serving
gang: {json.dumps(roles)}
replicas: {{min: 2, max: {most}}}
ready: {{http: {server.ready}, every: 500ms, timeout: 2s, within: 2m}}
drain: 20s
scale:
  on: [{{metric: concurrency, target: {0.75 * server.slots:g}}}]
  every: 2s
  down: {{stabilise: 10s}}
route: {{models: [{server.name}], concurrency: {server.slots}, queue: 200, wait: 30s}}
"""
