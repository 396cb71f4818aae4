"""A real server that was asked for and does not start says why. The tests that ask it: see conftest.py."""

from pathlib import Path

import pytest

from support.kubernetes.real import (
    ASSETS,
    NoRealServer,
    is_asked_for,
    real_controllers,
    real_server,
)
from support.kubernetes.shared import or_skipped


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ASSETS, str(tmp_path))
    (tmp_path / "etcd").touch()
    assert is_asked_for()
    with pytest.raises(NoRealServer, match="has no kube-apiserver"), real_server(tmp_path):
        raise AssertionError("there is no such server")


def test_a_server_that_does_not_start_is_told_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ASSETS, str(tmp_path))
    for name, script in (
        ("etcd", "exec sleep 600"),
        ("kube-apiserver", "echo unknown gate; exit 1"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o700)
    with pytest.raises(NoRealServer, match="unknown gate"), real_server(tmp_path):
        raise AssertionError("it did not start")


def test_controllers_that_are_missing_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ASSETS, str(tmp_path))
    with (
        pytest.raises(NoRealServer, match="no kube-controller-manager"),
        real_controllers(tmp_path, "https://127.0.0.1:1", "namespace-controller"),
    ):
        raise AssertionError("there are no such controllers")


@pytest.mark.parametrize(("is_ci", "outcome"), [("true", "Failed"), ("", "Skipped")])
def test_without_a_server_tests_are_skipped_but_not_in_ci(
    is_ci: str, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", is_ci)
    with pytest.raises(BaseException, match="none starts") as told, or_skipped():
        raise NoRealServer("none starts")
    assert told.typename == outcome
