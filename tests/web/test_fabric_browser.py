"""The page in a real browser: it opens without complaint, asks for nothing, and its script finds, filters and zooms."""

import json
import re
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from gantree.model.cluster import Cluster, DomainFacts, Node
from gantree.model.placements import MemberPlacement
from gantree.topology.fabric.conditions import Conditions
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import machine
from gantree.topology.occupancy.occupancy import Occupancy
from gantree.web.fabric.page import page
from gantree.web.fabric.style import look_of
from support.chromium import chromium_path

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--window-size=1400,900", "--virtual-time-budget=2000",
)  # fmt: skip
NODES = 2000

PROBE = """
<script>
const problems = []; addEventListener('securitypolicyviolation', e => problems.push(e.blockedURI));
addEventListener('load', () => {
  const seen = {}, svg = document.querySelector('#view svg'), seek = document.getElementById('seek');
  const width = () => svg.getBoundingClientRect().width;
  const lit = () => [...svg.querySelectorAll('.n')].filter(n => +getComputedStyle(n).opacity === 1).length;
  const find = text => { seek.value = text; seek.dispatchEvent(new Event('input')); return lit(); };
  const fill = selector => getComputedStyle(svg.querySelector(selector)).fill;
  seen.nodes = svg.querySelectorAll('.n').length; seen.lit = lit();
  seen.fits = Math.abs(width() - document.getElementById('view').clientWidth) < 4;
  const label = svg.querySelector('.n text.s');
  seen.label_before = getComputedStyle(label).display !== 'none'; const before = width();
  for (let i = 0; i < 3; i++) document.getElementById('in').click();
  seen.grown = width() / before; seen.label_after = getComputedStyle(label).display !== 'none';
  document.getElementById('whole').click();
  const view = document.getElementById('view'), box = svg.getBoundingClientRect();
  seen.whole = box.width <= view.clientWidth + 1 && box.height <= view.clientHeight + 1;
  seen.by_node = find('gpu0007'); seen.by_job = find('train-3'); seen.by_partition = find('feed-1');
  seen.told = document.getElementById('matches').textContent; seen.by_nothing = find('');
  document.querySelector('button[data-only=out]').click(); seen.out = lit();
  document.querySelector('button[data-only="0"]').click(); seen.first_holder = lit();
  seen.pressed = document.querySelectorAll('button[aria-pressed=true]').length;
  document.querySelector('button[data-only="0"]').click(); seen.all_again = lit();
  find('gpu0007'); seek.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}));
  seen.line = document.getElementById('told').textContent;
  seen.fills = [fill('.h'), getComputedStyle(document.body).backgroundColor];
  seen.alerts = document.querySelectorAll('b.injected').length;
  seen.problems = problems; seen.requests = performance.getEntriesByType('resource').length;
  document.body.insertAdjacentHTML('beforeend', '<pre id="seen"></pre>');
  document.getElementById('seen').textContent = JSON.stringify(seen);
});
</script></body>"""


def big_page() -> str:
    model = machine("dgx-h100")
    nodes = tuple(
        Node(
            f"gpu{i:04}",
            model.name,
            (f"s{i // 512}", f"l{i // 32}"),
            partitions=(("power", f"feed-{i % 4}"),),
        )
        for i in range(NODES)
    )
    facts = (
        DomainFacts("node", "gpu1999", health=0),
        DomainFacts("leaf", "s0/l0", health=0.5, load=0.5),
    )
    fabric = Fabric.build(
        Cluster("big", ("spine", "leaf", "node"), {model.name: model}, nodes, domains=facts)
    )
    occupancy = Occupancy(fabric)
    for job in range(8):
        members = [
            MemberPlacement("w", i, f"gpu{16 * job + i:04}", tuple(range(8))) for i in range(16)
        ]
        occupancy.take(f"train-{job}<b class=injected>", members)
    return page(fabric, occupancy, Conditions(fabric))


def test_a_browser_opens_searches_filters_and_zooms_two_thousand_nodes(tmp_path: Path) -> None:
    file = tmp_path / "fabric.html"
    file.write_text(big_page().replace("</body>", PROBE), encoding="utf-8")
    command = [
        chromium_path(),
        *FLAGS,
        f"--user-data-dir={tmp_path / 'profile'}",
        "--dump-dom",
        file.as_uri(),
    ]
    left = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    found = re.findall(r'<pre id="seen">(\{.*?)</pre>', left, flags=re.DOTALL)
    assert found, "the page's script did not get to its end"
    seen: dict[str, Any] = json.loads(unescape(found[0]))
    assert seen["grown"] == pytest.approx(1.5**3, rel=0.01)
    del seen["grown"]
    assert seen == {
        "nodes": NODES, "lit": NODES, "fits": True, "whole": True,
        "label_before": False, "label_after": True,
        "by_node": 1, "by_job": 16, "by_partition": NODES // 4, "told": "500 nodes", "by_nothing": NODES,
        "out": 1, "first_holder": 16, "pressed": 1, "all_again": NODES,
        "line": "gpu0007 (dgx-h100)  \u00b7  spine s0, leaf l0  \u00b7  0 of 8 GPUs free  \u00b7  "
                "a: train-0<b class=injected> (GPU 0,1,2,3,4,5,6,7)  \u00b7  power: feed-3",
        "fills": [f'url("#p{look_of("train-0<b class=injected>")}")', "rgb(255, 255, 255)"],
        "alerts": 0, "problems": [], "requests": 0,
    }  # fmt: skip
