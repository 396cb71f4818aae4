"""`gantree topo page`: one file for a browser, from a cluster file; the drawing itself is tests/web's."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

Gantree = Callable[..., Any]


def test_the_page_is_written_where_asked(gantree: Gantree, cluster_file: Path) -> None:
    target = cluster_file.with_name("fabric.html")
    outcome = gantree("topo", "page", cluster_file, "-o", target)
    assert outcome.code == 0
    assert str(target) in outcome.out
    text = target.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "site:old" in text


@pytest.mark.parametrize("words", [["--format", "svg"], ["-o", "{dir}/fabric.svg"]])
def test_the_picture_alone_is_an_svg_file(
    gantree: Gantree, cluster_file: Path, words: list[str]
) -> None:
    given = [word.replace("{dir}", str(cluster_file.parent)) for word in words]
    outcome = gantree("topo", "page", cluster_file, *given)
    target = cluster_file.with_name("fabric.svg")
    text = target.read_text(encoding="utf-8") if target.exists() else outcome.out
    root = etree.fromstring(text.encode())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "16 GPUs, 14 free, 2 taken by 1 holder" in " ".join(root.itertext())


def test_without_a_file_the_page_goes_to_stdout(gantree: Gantree, cluster_file: Path) -> None:
    assert gantree("topo", "page", cluster_file).out.rstrip().endswith("</html>")


def test_a_page_that_cannot_be_written_is_said(gantree: Gantree, cluster_file: Path) -> None:
    outcome = gantree("topo", "page", cluster_file, "-o", "/no/such/dir/fabric.html")
    assert outcome.code == 2
    assert "cannot be written" in outcome.err


def test_without_a_cluster_the_daemon_is_asked(gantree: Gantree, tmp_path: Path) -> None:
    outcome = gantree("topo", "page", "--state", tmp_path / "none")
    assert outcome.code == 1
    assert outcome.out == ""
