"""Lua 5.3 as HAProxy has it, in a process of its own: `lua5.3` of the distribution, or none."""

import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from gantree.routing.haproxy.config import LUA

PROGRAMS = ("lua5.3", "lua5.4", "lua")
DRIVER = """
package.path = "{lua}/?.lua;" .. package.path
choice, prefixes = require("choice"), require("prefixes")
function crc32(text)
    local crc = 0xFFFFFFFF
    for index = 1, #text do
        crc = crc ~ text:byte(index)
        for _ = 1, 8 do crc = (crc >> 1) ~ (0xEDB88320 & -(crc & 1)) end
    end
    return ~crc & 0xFFFFFFFF
end
function joined(list) return table.concat(list, " ") end
io.stdout:setvbuf("line")
for line in io.lines() do
    local results = table.pack(assert(load("return " .. line))())
    for index = 1, results.n do results[index] = tostring(results[index]) end
    print(table.concat(results, "\\t"))
end
"""


def lua_program() -> str | None:
    """The interpreter, if there is one."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Lua:
    """Evaluates expressions; choice, prefixes and crc32 are defined."""

    def __init__(self, program: str, directory: Path) -> None:
        script = directory / "driver.lua"
        script.write_text(DRIVER.replace("{lua}", str(LUA)))
        self._process = subprocess.Popen(
            [program, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def values(self, expression: str) -> list[str]:
        """What an expression in one line gives, as text."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(expression + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().rstrip("\n").split("\t")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()
