"""The messages of Envoy's external processing (ext_proc), as Envoy's own descriptors have them.

`envoy.binpb` is a FileDescriptorSet of envoy/service/ext_proc/v3/external_processor.proto and what it imports, of
envoyproxy/data-plane-api (Apache License 2.0, LICENSE.envoy). The packages on PyPI that carry these messages are not
used: xds-protos has a package `opentelemetry` of its own, which hides that of opentelemetry-api.
"""

from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
METHOD = "Process"
FULL_DUPLEX_STREAMED, BUFFERED, BUFFERED_PARTIAL = 4, 2, 3
"""Ways in which Envoy sends a body (ProcessingMode.BodySendMode)."""


def _pool() -> Any:
    found = descriptor_pool.DescriptorPool()
    text = files(__package__).joinpath("envoy.binpb").read_bytes()
    for each in descriptor_pb2.FileDescriptorSet.FromString(text).file:
        found.Add(each)
    return found


_POOL = _pool()


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(
        _POOL.FindMessageTypeByName(f"envoy.service.ext_proc.v3.{name}")
    )


ProcessingRequest: Any = _message("ProcessingRequest")
ProcessingResponse: Any = _message("ProcessingResponse")
