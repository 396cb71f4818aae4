"""One request of a gateway: the messages of its stream, and what is answered to each.

How a body comes decides when the endpoint is told. FULL_DUPLEX_STREAMED (what the inference extension asks of gateways)
and gateways that do not say: the head is answered when the whole body is there. BUFFERED: the head is let through, and
the endpoint is told with the body. Without a body, or with one that cannot be waited for: with the head, of a picker
for one service.
"""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from gantree.routing.endpoint_picker.messages import (
    BUFFERED,
    BUFFERED_PARTIAL,
    FULL_DUPLEX_STREAMED,
    ProcessingResponse,
)
from gantree.routing.endpoint_picker.picker import Picked, Picker, Refused, Request, endpoint_of
from gantree.routing.measurements import Measurements, Record

DESTINATION, NAMESPACE = "x-gateway-destination-endpoint", "envoy.lb"
SUBSET, SUBSET_NAMESPACE = "x-gateway-destination-endpoint-subset", "envoy.lb.subset_hint"
SERVED = "x-gateway-destination-endpoint-served"
LARGEST_BODY = 10 * 1024 * 1024
CHUNK = 62_000
"""Bytes of a body in one message."""


class RequestStream:
    """A request from its head to the end of its response."""

    def __init__(
        self, picker: Picker, measurements: Measurements, clock: Callable[[], float]
    ) -> None:
        self._picker, self._measurements, self._clock = picker, measurements, clock
        self._began_s = clock()
        self._first_byte_s: float | None = None
        self._body = bytearray()
        self._headers: Mapping[str, str] = {}
        self._subset: tuple[str, ...] | None = None
        self._modes: tuple[int, int] | None = None
        self._picked: Picked | None = None
        self._server: tuple[str, str] | None = None
        self._status = 0

    async def answers(self, message: Any) -> AsyncIterator[Any]:
        """What is answered to a message."""
        kind = message.WhichOneof("request")
        if message.HasField("protocol_config"):
            told = message.protocol_config
            self._modes = (told.request_body_mode, told.response_body_mode)
        match kind:
            case "request_headers":
                async for each in self._on_head(message):
                    yield each
            case "request_body":
                async for each in self._on_body(message.request_body):
                    yield each
            case "request_trailers":
                if self._picked is None:
                    async for each in self._whole():
                        yield each
                yield ProcessingResponse(request_trailers={})
            case "response_headers":
                self._on_response(message)
                yield ProcessingResponse(response_headers={"response": {}})
            case "response_body":
                yield self._echoed("response_body", message.response_body)
            case "response_trailers":
                yield ProcessingResponse(response_trailers={})

    def end(self) -> None:
        """The stream has ended: the request is over."""
        if self._picked is None or self._server is None:
            return
        self._picker.in_flight[self._server] -= 1
        if not self._picker.in_flight[self._server]:
            del self._picker.in_flight[self._server]
        self._record(self._picked, self._server[1])
        self._picked = None

    # ----- the request

    async def _on_head(self, message: Any) -> AsyncIterator[Any]:
        head = message.request_headers
        self._headers = _headers(head)
        self._subset = _subset(message)
        if head.end_of_stream or self._mode(0) not in (
            None, FULL_DUPLEX_STREAMED, BUFFERED, BUFFERED_PARTIAL,
        ):  # fmt: skip
            yield await self._destination("request_headers")
        elif self._mode(0) in (BUFFERED, BUFFERED_PARTIAL):
            yield ProcessingResponse(request_headers={"response": {}})

    async def _on_body(self, body: Any) -> AsyncIterator[Any]:
        if self._picked is not None:
            yield self._echoed("request_body", body)
            return
        self._body += body.body
        if len(self._body) > LARGEST_BODY:
            yield _immediate(413, f"the request has more than {LARGEST_BODY} bytes")
        elif body.end_of_stream:
            async for each in self._whole():
                yield each
        elif self._mode(0) is None:
            yield ProcessingResponse(request_body={"response": {}})

    async def _whole(self) -> AsyncIterator[Any]:
        """The whole body is there: tell the endpoint, and give the body back where it was taken."""
        if self._mode(0) in (BUFFERED, BUFFERED_PARTIAL):
            yield await self._destination("request_body")
            return
        answer = await self._destination("request_headers")
        yield answer
        if answer.WhichOneof("response") == "immediate_response":
            return
        if self._mode(0) is None:
            yield ProcessingResponse(request_body={"response": {}})
            return
        whole = bytes(self._body)
        self._body.clear()
        for start in range(0, max(len(whole), 1), CHUNK):
            yield _chunk("request_body", whole[start : start + CHUNK], start + CHUNK >= len(whole))

    async def _destination(self, part: str) -> Any:
        """The endpoints, in the header and in the metadata; or the refusal."""
        request = Request(self._headers, bytes(self._body), self._subset)
        picked = self._picker.pick(request, await self._picker.looked_up(request))
        if isinstance(picked, Refused):
            self._refuse(picked)
            return _immediate(picked.status, picked.sentence)
        self._picked = picked
        self._use(picked.replicas[0].server)
        endpoints = picked.endpoints
        answer = ProcessingResponse()
        response = getattr(answer, part).response
        response.clear_route_cache = True
        option = response.header_mutation.set_headers.add()
        option.header.key, option.header.raw_value = DESTINATION, endpoints.encode()
        option.append_action = 2  # OVERWRITE_IF_EXISTS_OR_ADD: a client does not choose
        fields = answer.dynamic_metadata.fields[NAMESPACE].struct_value.fields
        fields[DESTINATION].string_value = endpoints
        return answer

    def _use(self, server: str) -> None:
        """A replica works on the request, and no other."""
        assert self._picked is not None, "a replica of what was picked"
        if self._server is not None:
            self._picker.in_flight[self._server] -= 1
        self._server = (self._picked.service.service, server)
        self._picker.in_flight[self._server] += 1

    # ----- the response

    def _on_response(self, message: Any) -> None:
        self._first_byte_s = self._clock() - self._began_s
        status = _headers(message.response_headers).get(":status", "")
        self._status = int(status) if status.isascii() and status.isdecimal() else 0
        served = _metadata(message, NAMESPACE, SERVED)
        replicas = () if self._picked is None else self._picked.replicas
        used = next((each for each in replicas if endpoint_of(each) == served), None)
        if used is not None:
            self._use(used.server)

    def _echoed(self, part: str, body: Any) -> Any:
        """A part of a body goes on as it came."""
        if self._mode(0 if part == "request_body" else 1) == FULL_DUPLEX_STREAMED:
            return _chunk(part, body.body, body.end_of_stream)
        return ProcessingResponse(**{part: {"response": {}}})

    # ----- what it took

    def _record(self, picked: Picked, server: str) -> None:
        total_s = self._clock() - self._began_s
        self._measurements.record(
            Record(
                picked.service.backend, server, self._status, self._first_byte_s, total_s, 0, str(picked.reason),
                is_shed=False,
            )
        )  # fmt: skip

    def _refuse(self, refused: Refused) -> None:
        if refused.service is not None:
            backend = refused.service.backend
            shed = Record(backend, None, refused.status, None, 0.0, 0, "refused", is_shed=True)
            self._measurements.record(shed)

    def _mode(self, which: int) -> int | None:
        """How the body of the request (0) or the response (1) comes; None where the gateway does not say."""
        return None if self._modes is None else self._modes[which]


def _headers(head: Any) -> dict[str, str]:
    """Headers by name; the value is in one of two fields, as the gateway is set."""
    found = ((each.key.lower(), each.raw_value or each.value.encode()) for each in head.headers.headers)  # fmt: skip
    return {key: value.decode("utf-8", "replace") for key, value in found}


def _subset(message: Any) -> tuple[str, ...] | None:
    """Endpoints from which one must be picked; None where the gateway names none."""
    told = message.metadata_context.filter_metadata
    if SUBSET_NAMESPACE not in told or SUBSET not in told[SUBSET_NAMESPACE].fields:
        return None
    value = told[SUBSET_NAMESPACE].fields[SUBSET]
    texts = [each.string_value for each in value.list_value.values] or [value.string_value]
    return tuple(word.strip() for text in texts for word in text.split(",") if word.strip())


def _metadata(message: Any, namespace: str, key: str) -> str:
    told = message.metadata_context.filter_metadata
    if namespace not in told or key not in told[namespace].fields:
        return ""
    found: str = told[namespace].fields[key].string_value
    return found


def _chunk(part: str, body: bytes, is_last: bool) -> Any:
    """A part of a body in a stream of parts."""
    mutation = {"streamed_response": {"body": body, "end_of_stream": is_last}}
    return ProcessingResponse(**{part: {"response": {"body_mutation": mutation}}})


def _immediate(status: int, sentence: str) -> Any:
    """The answer to a request that goes nowhere."""
    body = json.dumps({"error": {"message": sentence, "type": "gantree_endpoint_picker"}}) + "\n"
    header = {"header": {"key": "content-type", "raw_value": b"application/json"}}
    return ProcessingResponse(
        immediate_response={
            "status": {"code": status},
            "headers": {"set_headers": [header]},
            "body": body.encode(),
            "details": "gantree",
        }
    )
