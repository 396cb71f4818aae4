"""The output on a job's page: in time order, searched, with times, colours and no markup, over a break and a gap."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from gantree.executors.local.shim.log_cap import LogCap
from gantree.executors.local.shim.shim import read_json, write_json
from gantree.web.fabric.style import hue_of, look_of
from support.chromium import Complaints, chromium
from support.daemon import Daemon

CLUSTER = """
name: one
tiers: [node]
machines: {m4: {gpus: 4, gpu: H100-80GB}}
nodes: [{names: n0, machine: m4}]
"""
PATIENCE_MS = 300_000
SCRIPT = r"""
import os, time
rank, gate = os.environ["RANK"], GATE + os.environ["RANK"]
def wait():
    while not os.path.exists(gate):
        time.sleep(0.02)
    os.unlink(gate)
if rank == "1":
    wait()
for step in range(3):
    print(f"\x1b[31mstep {step}\x1b[0m of {rank} \x1b]0;title\x07<b id=taken>", flush=True)
if rank == "0":
    time.sleep(0.1)  # the shim writes down when, at most 20 ms later
    open(GATE + "1", "w")
wait()
print("\rbar 1\rbar 2", end="\n", flush=True)
print("x" * 30_000 + "end", flush=True)
wait()
"""
SHOWS_NOW_AND_NAMES = """() => {
  const box = (one) => document.querySelector(one)?.getBoundingClientRect();
  const window = box("#gantt-scroll"), now = box("#gantt-now"), name = box("#gantt-names a text");
  return window && now && name && window.left + 0.5 * window.width <= now.left && now.left <= window.right
    && window.left <= name.left && name.left <= window.right - 100;
}"""
"""Looked at in one moment: the parts of a page are replaced."""


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of this name and a rank lets that rank go on."""
    return tmp_path_factory.mktemp("gates") / "gate"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, gate: Path) -> Iterator[Daemon]:
    """A daemon with a job of two ranks: rank 1 writes once rank 0 has."""
    run = [sys.executable, "-c", SCRIPT.replace("GATE", repr(str(gate)))]
    role = {"role": "w", "members": 1, "processes": 2, "each": {"gpus": 2}, "run": run}
    state = tmp_path_factory.mktemp("output") / "state"
    with Daemon(state, CLUSTER, listen="127.0.0.1:0", pages=True) as running:
        running.client.submit(json.dumps({"name": "talks", "gang": [role]}), "talks.yaml")
        running.wait("talks", until="running")
        running.keep_address()
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE_MS)
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, daemon: Daemon) -> Iterator[Page]:
    """A page of somebody who has logged in; it must have nothing to complain of."""
    page, complaints = browser.new_page(base_url=daemon.url), Complaints()
    page.set_default_timeout(PATIENCE_MS)
    page.goto("/login")
    page.get_by_label("Token").fill((daemon.state_dir / "token").read_text().strip())
    page.get_by_role("button", name="Log in", exact=True).click()
    page.wait_for_url("**/")
    complaints.listen_to(page)
    yield page
    page.close()
    assert complaints == []


def test_output_is_shown_searched_and_goes_on_where_it_was(
    page: Page, daemon: Daemon, gate: Path
) -> None:
    page.goto("/jobs/talks")
    lines = page.locator("#output .line")
    expect(lines).to_have_count(6)
    ranks = lines.locator(".who").all_text_contents()
    assert ranks == ["[0] "] * 3 + ["[1] "] * 3
    expect(lines.first).to_contain_text("[0] step 0 of 0 <b id=taken>")
    expect(lines.first.locator(".fg1")).to_have_text("step 0")
    assert page.locator("#taken").count() == 0
    page.get_by_label("times").check()
    expect(lines.first.locator(".at")).to_have_text(time_of_day())
    page.get_by_label("Search").fill(r"step [12] of 1")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#log-note")).to_have_text("2 lines match.")
    expect(lines).to_have_count(2)
    page.get_by_label("Search").fill("(")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#log-note")).to_contain_text("missing )")
    page.get_by_label("Search").fill("")
    page.get_by_role("textbox", name="Ranks").fill("1")
    page.get_by_role("button", name="Show").click()
    expect(lines).to_have_count(3)
    daemon.kill()
    daemon.start()
    gate.with_name("gate1").touch()
    expect(lines).to_have_count(5)
    expect(lines.nth(3)).to_contain_text("[1] bar 2")
    expect(lines.nth(4)).to_contain_text("more characters")
    assert len(lines.nth(4).text_content() or "") < 11_000
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == "talks-rank-1.log"
    assert Path(download.value.path()).read_text().endswith("xend\n")


def time_of_day() -> re.Pattern[str]:
    """A time of the day, to the millisecond."""
    return re.compile(r"^\d\d:\d\d:\d\d\.\d{3} $")


def test_a_job_has_one_colour_on_every_page(page: Page) -> None:
    page.goto("/cluster")
    script = page.locator("script[src*='heat.js']").get_attribute("src") or ""
    names = ["talks", "", "größe-7", *(f"sweep.{number}" for number in range(60))]
    looks = page.evaluate(
        "async ([path, names]) => names.map((await import(path)).lookOf)",
        [script.replace("heat.js", "heat_look.js"), names],
    )
    assert looks == [look_of(name) for name in names]
    hue = f"hue-{hue_of('talks')}"
    for path in ("/jobs/talks", "/queue?list=running", "/"):
        page.goto(path)
        assert page.locator(f"main .chip.{hue}").count() > 0, path
    page.goto("/gantt")
    expect(page.locator(f"a[href$='/jobs/talks'] rect.running.{hue}")).to_have_count(1)


def test_fields_write_the_job_file_and_say_when_the_job_would_start(page: Page) -> None:
    page.goto("/submit")
    forecast, file = page.locator("#forecast"), page.locator("#text")
    page.get_by_label("Name", exact=True).fill("guided")
    page.get_by_label("Command").fill("""sh -c 'echo "$GREETING, $1"' sh "to  you\\""'"'""")
    page.get_by_label("Environment").fill("GREETING=it's: #1")
    page.get_by_label("Members").fill("0")
    expect(page.locator("#e-members")).to_contain_text("1 or more")
    expect(page.get_by_label("Members")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Members").fill("2")
    page.get_by_label("GPUs of each").fill("2")
    expect(page.locator("#e-members")).to_be_empty()
    expect(forecast).to_contain_text("needs")
    page.get_by_label("Members").fill("1")
    page.get_by_label("GPUs of each").fill("1")
    expect(forecast).to_have_text("Would start now on n0.")
    file.fill(file.input_value().replace("guided", "by-hand"))
    page.get_by_label("Members").fill("7")
    expect(page.locator("#edited")).to_be_visible()
    assert "members: 1" in file.input_value()
    page.get_by_label("Members").fill("1")
    page.get_by_role("button", name="Write it from the fields").click()
    page.get_by_label("Members").press("Control+Enter")
    page.wait_for_url("**/jobs/guided")
    expect(page.locator("#output")).to_contain_text('it\'s: #1, to  you""')


def test_on_a_phone_the_gantt_opens_at_now_with_the_names_of_its_rows(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/gantt")
    page.wait_for_function(SHOWS_NOW_AND_NAMES)  # its parts are replaced while it is looked at


def test_a_gap_in_a_log_is_said_once_and_nothing_behind_it_comes_twice(
    page: Page, daemon: Daemon
) -> None:
    (log,) = daemon.state_dir.glob("runs/talks*/1/log/rank-0.log")
    with log.open("ab") as file:
        file.write(b"".join(b"line %d\n" % number for number in range(150_000)))
    page.goto("/jobs/talks")
    lines = page.locator("#output .line")
    expect(lines.last).to_contain_text("[0] line 149999")
    LogCap([str(log)], {"cap_bytes": 1 << 20, "keep_free_bytes": 0}, read_json, write_json).look()
    daemon.kill()
    daemon.start()
    with log.open("ab") as file:
        file.write(b"last\n")
    expect(lines.last).to_contain_text("[0] last")
    texts = page.evaluate(
        "[...document.querySelectorAll('#output .line')].slice(-3).map((each) => each.lastChild.textContent)"
    )
    assert texts == ["line 149998", "line 149999", "last"]
    page.get_by_label("Search").fill("^line (1|149999)$")
    page.get_by_role("button", name="Show").click()
    expect(lines).to_have_count(3)
    expect(lines.nth(1)).to_contain_text("bytes of output were dropped here")
