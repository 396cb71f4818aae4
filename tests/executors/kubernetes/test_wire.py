"""HTTP as an API server speaks it, in whatever pieces it comes, and as those speak it that are none."""

import asyncio
import ipaddress
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gantree.executors.kubernetes.apiserver.connection import Connection
from gantree.executors.kubernetes.apiserver.wire import KEEP, Answer, Broken, Wire

T = TypeVar("T")
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def talk(handler: Handler, work: Callable[[Wire], Awaitable[T]]) -> T:
    """Work over a wire to a server that does with each connection what a test says."""

    async def both() -> T:
        server = await asyncio.start_server(handler, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        wire = Wire(f"http://127.0.0.1:{port}/below/", None)
        try:
            async with asyncio.timeout(90):
                return await work(wire)
        finally:
            wire.close()
            server.close()

    return asyncio.run(both())


class Server:
    """Answers each request with these bytes, in pieces of so many."""

    def __init__(self, answer: bytes, piece: int = 65_536, *, closes: bool = False) -> None:
        self.answer, self.piece, self.closes = answer, piece, closes
        self.connections = 0
        self.heads: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                for start in range(0, len(self.answer), self.piece):
                    writer.write(self.answer[start : start + self.piece])
                    await writer.drain()
                    await asyncio.sleep(0)
                if self.closes:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()


async def get(wire: Wire) -> Answer:
    return await wire.request("GET", "api/v1/pods?limit=1", "Accept: any\r\n", b"", 20.0)


PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
AFTER_100 = b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN


@pytest.mark.parametrize("answer", [PLAIN, CHUNKED, AFTER_100])
@pytest.mark.parametrize("piece", [1, 7, 65_536])
def test_an_answer_is_the_same_in_whatever_pieces_it_comes(answer: bytes, piece: int) -> None:
    server = Server(answer, piece)

    async def twice(wire: Wire) -> list[Answer]:
        return [await get(wire), await get(wire)]

    told = talk(server, twice)
    assert [(each.status, each.body) for each in told] == [(200, b"hello")] * 2
    assert server.connections == 1, "the connection is kept"
    line, *rest = server.heads[0].decode().split("\r\n")
    assert line == "GET /below/api/v1/pods?limit=1 HTTP/1.1"
    assert rest[0].startswith("Host: 127.0.0.1:")
    assert rest[1:] == ["Accept: any", "", ""]


def test_after_how_long_to_ask_again_is_told() -> None:
    answer = b"HTTP/1.1 429 Too Many\r\nretry-After: 7\r\nContent-Length: 0\r\n\r\n"
    told = talk(Server(answer), get)
    assert (told.status, told.retry_after, told.body) == (429, "7", b"")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    ],
)
def test_a_connection_that_the_server_gives_up_is_not_used_again(answer: bytes) -> None:
    server = Server(answer)

    async def twice(wire: Wire) -> list[bytes]:
        return [(await get(wire)).body, (await get(wire)).body]

    assert talk(server, twice) == [b"hello"] * 2
    assert server.connections == 2


def test_one_that_was_closed_while_nobody_used_it_is_forgotten() -> None:
    server = Server(PLAIN, closes=True)

    async def twice(wire: Wire) -> list[bytes]:
        first = await get(wire)
        while wire._idle:
            await asyncio.sleep(0.001)
        return [first.body, (await get(wire)).body]

    assert talk(server, twice) == [b"hello"] * 2


@pytest.mark.parametrize("answer", [PLAIN[:-2], CHUNKED[:-9], b"", b"SSH-2.0-OpenSSH\r\n"])
def test_what_breaks_off_or_is_no_http_is_an_error(answer: bytes) -> None:
    async def ask(wire: Wire) -> None:
        with pytest.raises(Broken):
            await get(wire)
        assert not wire._open

    talk(Server(answer, closes=True), ask)


def test_an_answer_that_does_not_come_is_given_up_with_its_connection() -> None:
    async def ask(wire: Wire) -> None:
        with pytest.raises(TimeoutError):
            await wire.request("GET", "x", "", b"", 0.01)
        assert not wire._idle

    talk(Server(b""), ask)


def test_nobody_listens() -> None:
    async def ask() -> None:
        with pytest.raises(Broken):
            await get(Wire("http://127.0.0.1:9", None))

    asyncio.run(ask())


def test_who_is_cancelled_leaves_no_connection_with_half_an_answer() -> None:
    async def ask(wire: Wire) -> None:
        asking = asyncio.ensure_future(get(wire))
        while not wire._open:
            await asyncio.sleep(0.001)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not wire._open

    talk(Server(PLAIN[:-2]), ask)


def test_many_at_once_have_a_connection_each_and_not_all_are_kept() -> None:
    server = Server(PLAIN)

    async def many(wire: Wire) -> int:
        await asyncio.gather(*(get(wire) for _ in range(KEEP + 9)))
        return len(wire._idle)

    assert talk(server, many) == KEEP
    assert server.connections == KEEP + 9


STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(
    b"%x\r\n%s\r\n" % (len(part), part) for part in (b"x" * 300_000,) * 9
)


def test_a_stream_is_read_to_its_end_though_its_reader_is_slow() -> None:
    async def read(wire: Wire) -> int:
        total = 0
        async with wire.stream("watch", "", 20.0) as (answer, chunks):
            assert answer.status == 200
            async for chunk in chunks:
                await asyncio.sleep(0.001)
                total += len(chunk)
        assert not wire._idle
        return total

    assert talk(Server(STREAM + b"0\r\n\r\n"), read) == 2_700_000


@pytest.mark.parametrize(
    ("closes", "silent_s", "error"), [(True, 20.0, Broken), (False, 0.2, TimeoutError)]
)
def test_a_stream_that_breaks_or_falls_silent_is_an_error(
    closes: bool, silent_s: float, error: type[Exception]
) -> None:
    async def read(wire: Wire) -> None:
        with pytest.raises(error):
            async with wire.stream("watch", "", silent_s) as (_, chunks):
                async for _ in chunks:
                    pass
        assert not wire._open

    talk(Server(STREAM, closes=closes), read)


def certificate() -> tuple[bytes, bytes]:
    """A certificate of 127.0.0.1 that signs itself, and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    text = key.private_bytes(serialization.Encoding.PEM, form, plain)
    return made.public_bytes(serialization.Encoding.PEM), text


@pytest.mark.parametrize("is_trusted", [True, False])
def test_over_tls_only_who_shows_a_trusted_certificate_is_asked(
    tmp_path: Path, is_trusted: bool
) -> None:
    """As uvloop does it, which the link runs on."""
    shown, key = certificate()
    (tmp_path / "both").write_bytes(shown + key)
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(tmp_path / "both")
    trusted = shown if is_trusted else certificate()[0]
    connection = Connection("https://127.0.0.1", authority=trusted.decode())
    server = Server(CHUNKED)

    async def ask() -> bytes:
        listening = await asyncio.start_server(server, "127.0.0.1", 0, ssl=own)
        url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        wire = Wire(url, connection.ssl_context())
        try:
            return (await get(wire)).body
        finally:
            wire.close()
            listening.close()

    if is_trusted:
        assert uvloop.run(ask()) == b"hello"
    else:
        with pytest.raises(Broken, match="certificate verify failed"):
            uvloop.run(ask())
    assert len(server.heads) == int(is_trusted)
