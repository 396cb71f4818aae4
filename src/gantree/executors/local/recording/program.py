"""The provenance of a program when it starts, read from files alone: nothing of the user's is executed.

The executable and the script by their SHA-256, the Python that runs them with its installed distributions, NCCL and
CUDA among those, and the revision of the working directory's git repository. All of it is bounded, and what cannot be
read is None: a record never prevents a run.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

LARGEST_FILE = 1 << 30
"""Bytes of a file that is still digested."""
MOST_DISTRIBUTIONS = 5000
_LONGEST_HEAD = 4096
_CHUNK = 1 << 20
_SYSTEM_LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")
_DISTRIBUTION = re.compile(
    r"(?P<name>[A-Za-z0-9._]+?)-(?P<version>[^-]+?)(?:-py[\d.]+)?\.(?:dist-info|egg-info)"
)
_PYTHON = re.compile(r"(?:python|pypy)(\d+(?:\.\d+)?)?[a-z]*", re.ASCII)
_LIBRARY = re.compile(r"python(\d+\.\d+)t?", re.ASCII)
_SHEBANG = re.compile(rb"#!\s*(\S+)(?:[ \t]+(?:-S\s+)?(\S+))?")
_NCCL = re.compile(r"nvidia-nccl-cu\d+")
_CUDA = re.compile(r"nvidia-cuda-runtime(-cu\d+)?")


def program_provenance(
    command: Sequence[str], env: Mapping[str, str], workdir: str
) -> dict[str, Any]:
    """Executable, script, Python and libraries of a command that runs in a directory with an environment."""
    program = _program(command[0], env, workdir) if command else None
    python = None if program is None else _python_of(program, env, workdir)
    distributions = _distributions(python, env, workdir) if python is not None else []
    return {
        "executable": _file(program),
        "script": _file(_script(command[1:], workdir)),
        "python": python and _python(python, distributions),
        "nccl": _version_of(distributions, _NCCL) or _nccl_library(env, workdir),
        "cuda_runtime": _version_of(distributions, _CUDA),
        "torch": _version_of(distributions, re.compile("torch")),
    }


def _program(word: str, env: Mapping[str, str], workdir: str) -> Path | None:
    """The file of a command's first word, as execvp finds it."""
    if "/" in word:
        path = Path(workdir, word)
        return path if _is_file(path) else None
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        path = Path(workdir, folder, word)
        if _is_file(path) and os.access(path, os.X_OK):
            return path
    return None


def _is_file(path: Path) -> bool:
    """Whether there is a file; none where one may not look."""
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises where one may not look


def _script(words: Sequence[str], workdir: str) -> Path | None:
    """The first of a command's arguments that is a file."""
    for word in words:
        with suppress(OSError, ValueError):
            path = Path(workdir, word)
            if not word.startswith("-") and _is_file(path):
                return path
    return None


def _file(path: Path | None) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        real = path.resolve()
        stat = real.stat()
    except (OSError, RuntimeError):
        return None
    digest = None
    if _may_read(real):  # the digest may be known of another user's run, and not be for this one
        digest = _digest(str(real), stat.st_size, stat.st_mtime_ns, stat.st_ino)
    return {"path": str(path), "real_path": str(real), "bytes": stat.st_size, "sha256": digest}


def _may_read(path: Path) -> bool:
    try:
        with path.open("rb"):
            return True
    except OSError:
        return False


@lru_cache(maxsize=256)
def _digest(path: str, size: int, mtime_ns: int, inode: int) -> str | None:
    """SHA-256 of a file, cached until its size, time or inode changes."""
    if size > LARGEST_FILE:
        return None
    digest = hashlib.sha256()
    try:
        with Path(path).open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError:
        return None
    return digest.hexdigest()


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LONGEST_HEAD)
    except OSError:
        return b""


def _python_of(program: Path | None, env: Mapping[str, str], workdir: str) -> Path | None:
    """The Python that a program is, or is run by; else the one on the job's PATH, which its shell would find.

    A script of that name (pyenv's) is none: which Python it would choose is not known without running it.
    """
    for path in _python_candidates(program, env, workdir):
        if path is not None and _PYTHON.fullmatch(path.name) and not _head(path).startswith(b"#!"):
            return path
    return None


def _python_candidates(
    program: Path | None, env: Mapping[str, str], workdir: str
) -> Iterator[Path | None]:
    yield program
    shebang = _SHEBANG.match(_head(program)) if program is not None else None
    if shebang is not None:
        first, second = (os.fsdecode(word) if word else "" for word in shebang.groups())
        yield _program(second if Path(first).name == "env" else first, env, workdir)
    yield _program("python", env, workdir)
    yield _program("python3", env, workdir)


def _prefix(python: Path) -> Path:
    """Where a Python's library is: that of its virtual environment, if it is in one."""
    if _is_file(python.parent.parent / "pyvenv.cfg"):
        return python.parent.parent
    with suppress(OSError, RuntimeError):
        python = python.resolve()
    return python.parent.parent


def _pyvenv(prefix: Path) -> dict[str, str]:
    lines = _head(prefix / "pyvenv.cfg").decode(errors="replace").splitlines()
    pairs = (line.partition("=") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _python(python: Path, distributions: Sequence[str]) -> dict[str, Any]:
    digest = hashlib.sha256("\n".join(distributions).encode()).hexdigest()
    return {
        "path": str(python),
        "version": _python_version(python),
        "distributions_sha256": digest,
        "distributions": list(distributions),
    }


def _python_version(python: Path) -> str | None:
    """From its virtual environment or its C headers in full, else from its name and its library."""
    prefix = _prefix(python)
    config = _pyvenv(prefix)
    version = config.get("version") or config.get("version_info")
    if version:
        return ".".join(version.split(".")[:3])
    series = next((folder.name.removeprefix("python") for folder in _libraries(prefix)), None)
    header = _head(prefix / "include" / f"python{series}" / "patchlevel.h").decode(errors="replace")
    full = re.search(r'#define\s+PY_VERSION\s+"([^"]+)"', header)
    return full[1] if full else series


def _libraries(prefix: Path) -> list[Path]:
    """lib/python3.11 and its like; with several that of the Python's own name would be first."""
    try:
        found = [path for path in (prefix / "lib").iterdir() if _LIBRARY.fullmatch(path.name)]
    except OSError:
        return []
    return sorted(found)


def _site_folders(python: Path, env: Mapping[str, str], workdir: str) -> Iterator[Path]:
    """Where the distributions are that a Python sees which is run in a directory."""
    for word in env.get("PYTHONPATH", "").split(os.pathsep):
        if word:
            yield Path(workdir, word)
    prefix = _prefix(python)
    config = _pyvenv(prefix)
    prefixes = [prefix]
    if config.get("include-system-site-packages", "").lower() == "true" and "home" in config:
        prefixes.append(Path(config["home"]).parent)
    for each in prefixes:
        for library in _libraries(each):
            yield library / "site-packages"
            yield library / "dist-packages"
        if each == Path("/usr"):
            yield Path("/usr/lib/python3/dist-packages")
            yield from (path / "dist-packages" for path in _libraries(Path("/usr/local")))


def _distributions(python: Path, env: Mapping[str, str], workdir: str) -> list[str]:
    """Installed distributions, `name==version`, sorted; names as PyPI compares them."""
    found: dict[str, str] = {}
    for folder in _site_folders(python, env, workdir):
        with suppress(OSError):
            for entry in os.scandir(folder):
                match = _DISTRIBUTION.fullmatch(entry.name)
                if match:
                    found.setdefault(
                        re.sub(r"[-_.]+", "-", match["name"]).lower(), match["version"]
                    )
    return [f"{name}=={found[name]}" for name in sorted(found)][:MOST_DISTRIBUTIONS]


def _version_of(distributions: Sequence[str], name: re.Pattern[str]) -> str | None:
    pairs = (each.partition("==") for each in distributions)
    return next((version for known, _, version in pairs if name.fullmatch(known)), None)


def _nccl_library(env: Mapping[str, str], workdir: str) -> str | None:
    """The version in the name of the system's libnccl, if there is one."""
    folders = [*env.get("LD_LIBRARY_PATH", "").split(os.pathsep), *_SYSTEM_LIBRARIES]
    for folder in filter(None, folders):
        with suppress(OSError, RuntimeError):
            library = Path(workdir, folder, "libnccl.so.2").resolve()
            found = re.search(r"\.so\.(\d+\.\d+\.\d+)$", library.name)
            if found:
                return found[1]
    return None
