"""The configuration file of HAProxy: frontends, tenants, a backend for each service. Its servers are added at run time.

One thread: `router.lua` counts on it. A change of what is written here needs another process (`Settings`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gantree.routing.haproxy.log_socket import NAME as LOG_SOCKET
from gantree.routing.table import RouteTable
from gantree.routing.table_file import Tenants

LUA = Path(__file__).parent
CACHE_SOCKET = "cache.sock"
"""Where the router says what replicas hold (`cache_events.lookup_socket`), if it has a service that wants it."""
PROGRAMS = {each.name: each.read_text(encoding="utf-8") for each in sorted(LUA.glob("*.lua"))}
"""As they are when the router starts: each process gets them, also one that starts after gantree was upgraded."""
CONNECT_S = 2.0
HEADERS_S = 10.0
BODY_S = 30.0
KEEP_ALIVE_S = 60.0
SPARE_S = 60.0
"""So much longer than a replica may be silent does a client wait."""
LONGEST_S = 24 * 86_400.0
"""HAProxy takes 2^31 ms at most."""
CACHE_WAIT_S = 0.05
"""So long a request waits for what replicas hold of its prompt, and then goes without."""
BODY_BYTES = 128 * 1024
"""How much of a request is read before it is sent on: its model, its prefix, and what can be sent again."""
TENANTS = "_tenants"
RING = "_log"
NEXT = "_next"
FRONT = "_front"
FRONT_SOCKET = "front.sock"
"""Where the newest process listens for those before it."""
RING_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Settings:
    """What a process of HAProxy is configured with. backends: name, seconds in the queue, seconds of silence.

    listeners: words of `bind` behind its descriptor, by descriptor. at: the place of callers that do not say theirs.
    """

    backends: tuple[tuple[str, float, float], ...]
    listeners: Mapping[int, str] = field(default_factory=dict)
    at: str = ""
    tenants: Tenants | None = None
    places: tuple[tuple[str, str], ...] = ()
    explain: bool = False
    body_bytes: int = BODY_BYTES
    cache_wait_s: float = CACHE_WAIT_S


def backends_of(table: RouteTable) -> tuple[tuple[str, float, float], ...]:
    """Return the backends of a table."""
    return tuple(
        sorted(
            (each.backend, each.routing.wait_s, each.routing.timeout_s) for each in table.services
        )
    )


def files_of(settings: Settings, directory: Path, table_lines: Sequence[str]) -> dict[str, str]:
    """Return the files of a process by name: haproxy.cfg and what it reads. directory: where they will be."""
    files = {"table": "".join(f"{line}\n" for line in table_lines), **PROGRAMS}
    if settings.places:
        files["places.map"] = "".join(f"{net} {place}\n" for net, place in settings.places)
    if settings.tenants:
        files |= _tenant_maps(settings.tenants)
    sections = (
        _global(settings, directory),
        _ring(directory),
        _defaults(settings),
        _front(settings, directory),
        _tenant_table(settings.tenants),
        _next(directory),
        *(_backend(*each) for each in settings.backends),
    )
    return {**files, "haproxy.cfg": "\n".join(filter(None, sections))}


def _global(settings: Settings, directory: Path) -> str:
    return f"""\
global
  nbthread 1
  tune.bufsize {settings.body_bytes}
  stats socket {quoted(directory / "admin.sock")} mode 600 level admin
  stats timeout 1h
  log ring@{RING} len 2048 format raw local0
  setenv GANTREE_ROUTE_TABLE {quoted(directory / "table")}
  setenv GANTREE_ROUTE_CACHE {quoted(f"unix@{directory.parent / CACHE_SOCKET}")}
  setenv GANTREE_ROUTE_CACHE_WAIT_S {settings.cache_wait_s:.3f}
  {f"setenv GANTREE_ROUTE_AT {quoted(settings.at)}" if settings.at else "unsetenv GANTREE_ROUTE_AT"}
  lua-prepend-path {quoted(directory / "?.lua")}
  lua-load {quoted(directory / "router.lua")}
"""


def _ring(directory: Path) -> str:
    return _section(
        [
            f"ring {RING}",
            "format raw",
            "maxlen 2048",
            f"size {RING_BYTES}",
            "timeout connect 5s",
            "timeout server 10s",
            f"server router {quoted(f'unix@{directory.parent / LOG_SOCKET}')}",
        ]
    )


def _defaults(settings: Settings) -> str:
    longest_s = max((silent for _, _, silent in settings.backends), default=0.0)
    waits_s = max((wait for _, wait, _ in settings.backends), default=0.0)
    return f"""\
defaults
  mode http
  log global
  log-format "%[var(txn.backend)] %s %ST %TR %Tw %Tc %Tr %Ta %ts %rc %[var(txn.reason)] %[var(txn.tenant)]"
  option http-no-delay
  option abortonclose
  option idle-close-on-response
  option forwardfor
  option redispatch 1
  retries 3
  retry-on conn-failure empty-response
  timeout connect {_ms(CONNECT_S)}
  timeout http-request {_ms(HEADERS_S)}
  timeout http-keep-alive {_ms(KEEP_ALIVE_S)}
  timeout client {_ms(longest_s + waits_s + SPARE_S)}
  timeout server {_ms(longest_s or SPARE_S)}
  http-error status 502 content-type application/json string {_error("bad_gateway", "the replica broke off before it answered")}
  http-error status 503 content-type application/json string {_error("overloaded", "no replica took the request in time")} hdr Retry-After 1
  http-error status 504 content-type application/json string {_error("timeout", "the replica did not answer in time")}
"""  # noqa: E501 - lines of HAProxy's language have no continuation


def _front(settings: Settings, directory: Path) -> str:
    lines = [f"frontend {FRONT}"]
    lines += [f"bind fd@{fd} {words}".rstrip() for fd, words in settings.listeners.items()]
    lines.append(f"bind {quoted(f'unix@{directory.parent / FRONT_SOCKET}')} accept-proxy mode 600")
    if settings.places:
        lines.append(
            f"http-request set-var(txn.from) src,map_ip({quoted(directory / 'places.map')})"
        )
    lines += _tenant_rules(settings.tenants, directory)
    lines += [
        f"http-request wait-for-body time {_ms(BODY_S)} if METH_POST",
        "http-request lua.choose",
        "http-request disable-l7-retry if { var(txn.no_retry) -m bool }",
    ]
    if settings.explain:
        lines += [
            "http-after-response set-var(txn.reason) str(retried) if { var(txn.server) -m found }"
            " { srv_name -m found } !{ srv_name,strcmp(txn.server) eq 0 }",
            "http-after-response set-header X-Gantree-Chosen"
            " '%[srv_name,regsub(_[0-9]+$,),regsub(:2F:,/)]; %[var(txn.reason)]'"
            f" unless {{ var(txn.backend) -m str {NEXT} }}",
        ]
    lines.append("use_backend %[var(txn.backend)] if { var(txn.backend) -m found }")
    return _section(lines)


def _next(directory: Path) -> str:
    """Requests on connections that an older process still has."""
    return _section(
        [
            f"backend {NEXT}",
            f"server next {quoted(f'unix@{directory.parent / FRONT_SOCKET}')} send-proxy-v2",
        ]
    )


def _backend(name: str, wait_s: float, silent_s: float) -> str:
    """The backend of a service. What `router.lua` does not choose (a retry) goes to the emptier of two.

    Not leastconn: HAProxy 2.6 crashes in it (fwlc_get_next_server) once servers that had requests were deleted.
    """
    return _section(
        [
            f"backend {name}",
            "balance random(2)",
            f"timeout queue {_ms(wait_s)}",
            f"timeout server {_ms(silent_s)}",
            "use-server %[var(txn.server)] if { var(txn.server) -m found }",
        ]
    )


# ----- tenants


def _tenant_maps(tenants: Tenants) -> dict[str, str]:
    known = (*tenants.tenants, *((tenants.others,) if tenants.others else ()))
    rows = {
        "tenants.map": [(key, each.name) for each in tenants.tenants for key in each.keys],
        "rates.map": [(each.name, each.requests_per_s) for each in known],
        "concurrent.map": [(each.name, each.concurrent) for each in known],
        "priorities.map": [(each.name, each.priority) for each in known],
    }
    return {name: "".join(f"{key} {value}\n" for key, value in each) for name, each in rows.items()}


def _tenant_rules(tenants: Tenants | None, directory: Path) -> list[str]:
    if tenants is None:
        return []
    refused = _error("unauthorized", "no key of a tenant: Authorization: Bearer KEY, or X-API-Key")
    rate = _error("too_many_requests", "more requests a second than this tenant may send")
    many = _error("too_many_concurrent", "more requests at a time than this tenant may send")
    answer = "content-type application/json hdr Retry-After 1 string"
    maps = {
        name: quoted(directory / f"{name}.map")
        for name in ("tenants", "rates", "concurrent", "priorities")
    }
    others = (
        f"http-request set-var(txn.tenant) str({tenants.others.name}) unless {{ var(txn.tenant) -m found }}"
        if tenants.others
        else "http-request return status 401 content-type application/json hdr WWW-Authenticate Bearer"
        f" string {refused} unless {{ var(txn.tenant) -m found }}"
    )
    return [
        'http-request set-var(txn.key) req.hdr(authorization),regsub("^[Bb]earer +",),sha2(256),hex'
        " if { req.hdr(authorization) -m found }",
        "http-request set-var(txn.key) req.hdr(x-api-key),sha2(256),hex"
        " if !{ var(txn.key) -m found } { req.hdr(x-api-key) -m found }",
        f"http-request set-var(txn.tenant) var(txn.key),map_str({maps['tenants']}) if {{ var(txn.key) -m found }}",
        others,
        f"http-request set-var(txn.rate) var(txn.tenant),map_str_int({maps['rates']})",
        f"http-request set-var(txn.concurrent) var(txn.tenant),map_str_int({maps['concurrent']})",
        f"http-request set-var(txn.most_priority) var(txn.tenant),map_str({maps['priorities']})",
        f"http-request track-sc0 var(txn.tenant) table {TENANTS}",
        f"http-request return status 429 {answer} {rate} if {{ var(txn.rate) -m int gt 0 }}"
        " { sc_gpc0_rate(0),sub(txn.rate) ge 0 }",
        f"http-request return status 429 {answer} {many} if {{ var(txn.concurrent) -m int gt 0 }}"
        " { sc_conn_cur(0),sub(txn.concurrent) gt 0 }",
        "http-request sc-inc-gpc0(0)",
    ]


def _tenant_table(tenants: Tenants | None) -> str:
    if tenants is None:
        return ""
    return _section(
        [
            f"backend {TENANTS}",
            "stick-table type string len 64 size 100k expire 1h store conn_cur,gpc0,gpc0_rate(1s)",
        ]
    )


# ----- words of HAProxy's language


def quoted(text: object) -> str:
    """Return a word in which nothing has a meaning."""
    return "'" + str(text).replace("'", "'\\''") + "'"


def _error(code: str, message: str) -> str:
    return quoted(
        f'{{"error": {{"message": "{message}", "type": "gantree_route", "code": "{code}"}}}}'
    )


def _ms(seconds: float) -> str:
    return f"{max(1, round(min(seconds, LONGEST_S) * 1000))}ms"


def _section(lines: Sequence[str]) -> str:
    return "\n  ".join(lines) + "\n"
