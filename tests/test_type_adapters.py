"""Applications whose fields share type adapters describe and check requests as those whose fields do not."""

from typing import Any
from unittest.mock import MagicMock

import pytest
from fastapi._compat.v2 import ModelField

from gantree.api.access.access import Access
from gantree.api.server.app import build_app
from support import type_adapters


def described() -> tuple[dict[str, Any], set[int]]:
    """What an application says of itself, and the adapters of its fields."""
    app = build_app(MagicMock(), Access())
    return app.openapi(), {id(each) for each in type_adapters._made.values()}


def test_shared_adapters_change_nothing_and_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as plain:
        plain.setattr(ModelField, "__post_init__", type_adapters._make)
        wanted, _ = described()
    monkeypatch.setattr(ModelField, "__post_init__", type_adapters._share)
    (first, made), (second, later) = described(), described()
    assert first == second == wanted
    assert made == later
    assert len(made) > 50
