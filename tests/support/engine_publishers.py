"""The publishers of cache events of vLLM and SGLang, from their packages: one module of each, as it stands there.

The modules import what only a whole engine has (torch, configuration); what they take of it is a few names, which stand
in here. `GANTREE_ENGINES` is a directory into which the packages of PyPI were unpacked:

    pip download --no-deps vllm==0.33.0 sglang==0.5.23
    unzip 'vllm-*.whl' vllm/distributed/kv_events.py -d DIRECTORY
    unzip 'sglang-*.whl' sglang/srt/disaggregation/kv_events.py -d DIRECTORY
"""

import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

MODULES = {
    "vllm": "vllm/distributed/kv_events.py",
    "sglang": "sglang/srt/disaggregation/kv_events.py",
}


def _split(path: str) -> tuple[str, str, str]:
    scheme, _, rest = path.partition("://")
    host, _, port = rest.rpartition(":")
    return scheme, host, port


STAND_INS: Mapping[str, Mapping[str, Any]] = {
    "vllm": {},
    "vllm.config": {},
    "vllm.v1": {},
    "vllm.v1.core": {},
    "vllm.utils": {},
    "vllm.config.kv_events": {"KVEventsConfig": SimpleNamespace},
    "vllm.logger": {"init_logger": logging.getLogger},
    "vllm.v1.core.kv_cache_utils": {"ExternalBlockHash": bytes | int},
    "vllm.utils.network_utils": {
        "get_ip": lambda: "127.0.0.1",
        "get_tcp_uri": lambda host, port: f"tcp://{host}:{port}",
        "is_valid_ipv6_address": lambda text: ":" in text,
        "split_zmq_path": _split,
    },
    "sglang": {},
    "sglang.srt": {},
    "sglang.srt.utils": {},
    "sglang.srt.runtime_context": {"get_parallel": None},
    "sglang.srt.utils.network": {
        "NetworkAddress": SimpleNamespace(
            parse=lambda text: SimpleNamespace(host=_split(text)[1], port=int(_split(text)[2]))
        )
    },
}


def publisher_module(engine: str, set_item: Callable[[Any, str, Any], None]) -> Any:
    """The module of an engine, or the test is skipped. set_item: that of monkeypatch."""
    home = os.environ.get("GANTREE_ENGINES")
    file = Path(home or "") / MODULES[engine]
    if not home or not file.exists():
        pytest.skip(f"GANTREE_ENGINES has no {MODULES[engine]} (support.engine_publishers)")
    for name, attributes in STAND_INS.items():
        module = ModuleType(name)
        module.__dict__.update(attributes, __path__=[])
        set_item(sys.modules, name, module)
    name = MODULES[engine].removesuffix(".py").replace("/", ".")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    set_item(sys.modules, name, loaded)
    spec.loader.exec_module(loaded)
    return loaded
