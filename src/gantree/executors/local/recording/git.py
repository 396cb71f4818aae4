"""The git revision of a directory, read from `.git`: git is not run, so no hook is, either.

Whether files were changed since the revision is not known: finding out would mean reading them all.
"""

import re
from pathlib import Path
from typing import Any

_DEEPEST = 40
_LARGEST = 4 << 20
_REVISION = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REF = re.compile(r"refs/[^\s\0:?*\[\\]{1,1000}")


def git_revision(folder: Path) -> dict[str, Any] | None:
    """{"root", "revision", "branch"} of the repository that holds a directory, None where there is none.

    revision is None where it could not be read (a repository without a commit, or refs in a `reftable`).
    """
    try:
        return _found(folder.resolve())
    except (OSError, RuntimeError, ValueError):
        return None


def _found(folder: Path) -> dict[str, Any] | None:
    for root in [folder, *folder.parents][:_DEEPEST]:
        if (root / ".git").exists():
            break
    else:
        return None
    own = _git_folder(root)
    if own is None:
        return None
    head = _text(own / "HEAD").strip()
    ref = head.removeprefix("ref: ").strip() if head.startswith("ref: ") else None
    revision = head if ref is None else _revision_of(own, ref)
    return {
        "root": str(root),
        "revision": revision if revision and _REVISION.fullmatch(revision) else None,
        "branch": ref.removeprefix("refs/heads/") if ref and _is_ref(ref) else None,
    }


def _git_folder(root: Path) -> Path | None:
    """`.git`, or where the file of that name leads (a worktree, a submodule)."""
    git = root / ".git"
    if git.is_dir():
        return git
    content = _text(git).strip()
    return root / content.removeprefix("gitdir:").strip() if content.startswith("gitdir:") else None


def _is_ref(ref: str) -> bool:
    return _REF.fullmatch(ref) is not None and ".." not in ref.split("/")


def _revision_of(own: Path, ref: str) -> str | None:
    """What a branch points at: a file of its own, in the worktree or in the repository, or a line of packed-refs."""
    if not _is_ref(ref):
        return None
    shared = _text(own / "commondir").strip()
    common = own / shared if shared else own
    for folder in (own, common):
        content = _text(folder / ref).strip()
        if content:
            return content
    for line in _text(common / "packed-refs").splitlines():
        revision, _, name = line.partition(" ")
        if name.strip() == ref:
            return revision
    return None


def _text(path: Path) -> str:
    """The start of a regular file; "" where there is none."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return file.read(_LARGEST).decode(errors="replace")
