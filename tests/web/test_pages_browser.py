"""The pages in a real browser, behind a path prefix: log in, submit, watch, ask, cancel; and that all people can."""

import json
import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from gantree.web.pages.frame import local_path
from support.chromium import Complaints, chromium
from support.daemon import Daemon
from support.page_rules import AUDIT

CLUSTER = """
name: two-leaves
tiers: [spine, leaf, node]
machines:
  m4: {gpus: 4, gpu: H100-80GB, cpus: 32, memory_GiB: 256, nics: 2}
nodes:
  - {names: "n[0-1]", machine: m4, at: {spine: s0, leaf: l0}}
  - {names: "n[2-3]", machine: m4, at: {spine: s0, leaf: l1}}
"""
PREFIX = "/gantree"
PATIENCE_MS = 300_000
"""A machine may be busy; nothing here waits so long that is not wrong."""
EVIL = "<script>document.title='taken'</script>"
FIRST = "priority: production"
"""Goes before what is reserved for others."""
PHONE = {"width": 375, "height": 740}
PAGES = ("/", "/queue", "/queue?list=running", "/submit", "/jobs/long", "/jobs/wide")


def job(name: str, script: str, members: int = 1, gpus: int = 4, more: str = "") -> str:
    gang = f"gang: [{{role: worker, members: {members}, each: {{gpus: {gpus}}}, run: [sh, -c, '{script}']}}]"
    return f"name: {name}\n{gang}\n{more}\n"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Four nodes: `long` runs on two of them, `wide` wants more than are left and waits."""
    state = tmp_path_factory.mktemp("pages") / "state"
    made = Daemon(state, CLUSTER, listen="127.0.0.1:0", pages=True, root_path=PREFIX)
    with made as daemon:
        daemon.client.submit(
            job("long", "echo started; sleep 600", members=2), base_dir="/tmp", user=EVIL
        )
        daemon.wait("long", until="running")
        daemon.client.submit(job("wide", "true", members=4), base_dir="/tmp")
        yield daemon


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE_MS)
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def logged_in(browser: Browser, daemon: Daemon) -> Iterator[BrowserContext]:
    """Somebody who has logged in by the page."""
    context = browser.new_context(base_url=daemon.url)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(f"{PREFIX}/login")
    log_in(page, daemon)
    page.wait_for_url(f"**{PREFIX}/")
    page.close()
    yield context
    context.close()


@pytest.fixture
def page(logged_in: BrowserContext) -> Iterator[Page]:
    """A page of theirs that must have nothing to complain of at the end."""
    page, complaints = logged_in.new_page(), Complaints()
    complaints.listen_to(page)
    yield page
    page.close()
    assert complaints == []


def log_in(page: Page, daemon: Daemon) -> None:
    page.get_by_label("Token").fill((daemon.state_dir / "token").read_text().strip())
    page.get_by_role("button", name="Log in", exact=True).click()


def test_who_has_no_session_is_sent_to_log_in_and_back_to_where_they_wanted(
    browser: Browser, daemon: Daemon
) -> None:
    page = browser.new_page(base_url=daemon.url)
    page.goto(f"{PREFIX}/queue?list=ended")
    expect(page).to_have_url(re.compile(rf"{PREFIX}/login\?next="))
    page.get_by_label("Token").fill("no-such-token-1234")
    page.get_by_role("button", name="Log in", exact=True).click()
    expect(page.get_by_role("alert")).not_to_be_empty()
    log_in(page, daemon)
    expect(page).to_have_url(re.compile(rf"{PREFIX}/queue\?list=ended$"))
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(re.compile(rf"{PREFIX}/login$"))
    page.goto(f"{PREFIX}/")
    expect(page).to_have_url(re.compile("/login"))
    page.close()


def test_a_way_back_leads_nowhere_else(browser: Browser, daemon: Daemon) -> None:
    page = browser.new_page(base_url=daemon.url)
    page.goto(f"{PREFIX}/login?next=//evil.example/")
    log_in(page, daemon)
    page.wait_for_url(f"**{PREFIX}/")
    assert urlsplit(page.url).path == f"{PREFIX}/"
    page.close()


@pytest.mark.parametrize(
    "path",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "",
        "x",
        "/a\nb",
        "/\t/evil.example",
    ],
)
def test_what_is_no_path_here_is_no_way_back(path: str) -> None:
    assert local_path(path) == "/"
    assert local_path("/queue?list=ended") == "/queue?list=ended"


def test_a_job_is_held_against_the_daemon_while_typed_then_runs_to_its_end_before_our_eyes(
    page: Page, daemon: Daemon, tmp_path: Path
) -> None:
    page.goto(f"{PREFIX}/submit")
    field, verdict = page.get_by_label(re.compile("^Job file")), page.locator("#verdict")
    expect(verdict).to_have_class("good")  # the example fits the site
    field.fill(job("seen", "true", members=0))
    expect(page.locator("#problems")).to_contain_text("members: found `0`")
    expect(field).to_have_attribute("aria-invalid", "true")
    gate = tmp_path / "gate"
    field.fill(
        job("seen", f"echo hello; while [ ! -e {gate} ]; do sleep 0.05; done", gpus=2, more=FIRST)
    )
    expect(verdict).to_have_text("Valid: it would be submitted as seen.")
    assert daemon.client.jobs(name="seen") == []
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url(f"**{PREFIX}/jobs/seen")
    page.evaluate("window.loadedOnce = true")
    expect(page.locator("h1 .phase")).to_have_text("running")
    expect(page.locator("#output")).to_contain_text("hello")
    expect(page.locator("#place")).to_contain_text("n")
    page.evaluate("window.stillThere = true")
    gate.touch()
    expect(page.locator("h1 .phase")).to_have_text("succeeded")
    expect(page.locator("#timeline")).to_contain_text("Ended: succeeded")
    assert page.evaluate("window.stillThere")


def test_the_job_page_says_why_and_what_would_be_otherwise(page: Page) -> None:
    page.goto(f"{PREFIX}/jobs/wide")
    expect(page.locator("#why")).to_contain_text("Waiting:")
    page.get_by_label("Members", exact=True).fill("2")
    page.get_by_label("Priority").first.fill("production")
    page.get_by_role("button", name="Ask").click()
    rows = page.locator("#alternatives tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_contain_text("members: 2")
    expect(rows.nth(1)).to_contain_text("at once")


def test_a_job_is_cancelled_only_once_that_was_confirmed(page: Page, daemon: Daemon) -> None:
    daemon.client.submit(job("unwanted", "true", members=4), base_dir="/tmp")
    page.goto(f"{PREFIX}/jobs/unwanted")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Back").click()
    page.get_by_role("button", name="Hold").click()
    page.get_by_role("button", name="Confirm").click()
    expect(page.locator("h1 .phase")).to_have_text("pending, held")
    assert daemon.client.job("unwanted")["phase"] == "pending"
    page.get_by_role("button", name="Priority").click()
    page.get_by_label("Value").fill("77")
    page.get_by_role("button", name="Confirm").click()
    expect(page.locator("#told")).to_contain_text("77")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Confirm").click()
    expect(page.locator("h1 .phase")).to_have_text("cancelled")


def test_the_queue_shows_filters_and_finds(page: Page) -> None:
    page.goto(f"{PREFIX}/queue")
    row = page.locator("#jobs tbody tr", has_text="wide")
    expect(row).to_contain_text("Waiting:")
    page.get_by_label("Name contains").fill("nothing-like-it")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#jobs")).to_contain_text("No jobs match this filter")
    page.get_by_label("Find a job by name or id").fill("long")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{PREFIX}/jobs/long")


def test_what_users_write_is_text_and_nothing_else(page: Page) -> None:
    for path in ("/queue?list=running", "/jobs/long", f"/queue?find={EVIL}&queue={EVIL}"):
        page.goto(PREFIX + path)
        assert page.title().endswith("gantree")
        assert EVIL in page.content().replace("&lt;", "<").replace("&gt;", ">").replace(
            "&#39;", "'"
        )
    page.goto(f"{PREFIX}/jobs/<b id=taken>")
    expect(page.locator("main")).to_contain_text("there is no job <b id=taken>")
    assert page.locator("#taken").count() == 0


def test_colours_follow_the_system_until_they_are_chosen(logged_in: BrowserContext) -> None:
    page = logged_in.new_page()
    ground = "getComputedStyle(document.body).backgroundColor"
    page.emulate_media(color_scheme="dark")
    page.goto(f"{PREFIX}/")
    dark = page.evaluate(ground)
    page.emulate_media(color_scheme="light")
    light = page.evaluate(ground)
    assert dark != light
    switch = page.get_by_role("button", name=re.compile("^Colours"))
    switch.click()
    switch.click()
    assert page.evaluate(ground) == dark
    page.reload()
    assert page.evaluate(ground) == dark
    switch.click()
    page.close()


def test_keys_alone_reach_everything(page: Page) -> None:
    page.goto(f"{PREFIX}/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("2")
    page.wait_for_url(f"**{PREFIX}/queue")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("wide")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{PREFIX}/jobs/wide")
    page.locator("#do-hold").focus()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.locator("#confirm")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#confirm")).to_be_hidden()
    assert page.evaluate("document.activeElement.id") == "do-hold"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_named_labelled_legible_and_fits_a_phone(page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size({"width": PHONE["width"], "height": PHONE["height"]})
    for path in PAGES:
        page.goto(PREFIX + path)
        assert (path, page.evaluate(AUDIT)) == (path, [])
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path


def test_a_page_allows_scripts_and_styles_of_its_own_alone(daemon: Daemon) -> None:
    asked = daemon.url.removesuffix(PREFIX)
    for prefix in ("", PREFIX):  # a proxy may take the prefix away, or leave it
        with urllib.request.urlopen(f"{asked}{prefix}/login") as answer:
            policy, html = answer.headers["Content-Security-Policy"], answer.read().decode()
        assert policy.startswith("default-src 'self';")
        assert "unsafe" not in policy
        assert re.findall(r"(?:src|href)=\"(?!/gantree/|#)", html) == []
        assert re.search(r"<script(?![^>]*src=)|<style|\son[a-z]+=|\sstyle=", html) is None


STREAMS = """
window.open_streams = new Set();
const fetched = window.fetch;
window.fetch = async (url, how) => {
  const answer = await fetched(url, how);
  if (String(url).includes("/v1/events")) {
    open_streams.add(answer);
    how.signal.addEventListener("abort", () => open_streams.delete(answer));
  }
  return answer;
};
let hidden = false;
Object.defineProperty(document, "hidden", { get: () => hidden });
window.hide = (value) => { hidden = value; document.dispatchEvent(new Event("visibilitychange")); };
window.said = [];
new MutationObserver(() => {
  const state = document.querySelector("#live-state")?.textContent;
  const is_first = state === "waiting for the daemon" && !said.includes(state);
  said.push(state);
  for (let i = 0; is_first && i < 5; i++) { hide(true); hide(false); }
}).observe(document, { subtree: true, childList: true, characterData: true });
"""
"""Counts streams, and hides the page five times at the moment at which it first says that it waits for the daemon."""


def test_a_page_has_one_stream_while_it_is_seen_and_none_while_it_is_hidden(
    logged_in: BrowserContext,
) -> None:
    page = logged_in.new_page()
    page.add_init_script(STREAMS)
    page.route("**/v1/events*", lambda route: route.abort(), times=1)
    page.goto(f"{PREFIX}/")
    state = page.locator("#live-state")
    expect(state).to_have_text("live")
    assert "waiting for the daemon" in page.evaluate("said")
    page.wait_for_timeout(1200)  # as long as the first of them pauses
    assert page.evaluate("open_streams.size") == 1
    page.evaluate("hide(true)")
    expect(state).to_have_text("paused")
    assert page.evaluate("open_streams.size") == 0
    page.close()


def test_a_page_notices_a_daemon_that_hangs_and_goes_on_after_it(
    daemon: Daemon, logged_in: BrowserContext
) -> None:
    page = logged_in.new_page()
    page.clock.install()
    page.goto(f"{PREFIX}/jobs/long")
    state = page.locator("#live-state")
    expect(state).to_have_text("live")
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        page.clock.fast_forward(46_000)
        expect(state).to_have_text("waiting for the daemon")
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    page.clock.fast_forward(1_000)
    expect(state).to_have_text("live")
    page.close()


SLOW = """
window.asked = window.underway = 0;
const slowed = window.fetch;
window.fetch = async (url, how) => {
  if (!String(url).endsWith("/nodes")) return slowed(url, how);
  asked += 1;
  await new Promise((done) => setTimeout(done, 200));
  underway += 1;
  try { return await slowed(url, how); } finally { underway -= 1; }
};
"""


def test_a_page_that_takes_long_is_asked_for_less_often(
    daemon: Daemon, logged_in: BrowserContext
) -> None:
    page = logged_in.new_page()
    page.clock.install()
    page.add_init_script(SLOW)
    page.goto(f"{PREFIX}/nodes")
    expect(page.locator("#live-state")).to_have_text("live")
    page.evaluate(
        """async () => {
          const pages = await import(document.querySelector("script[src$='page.js']").src);
          setInterval(() => pages.refreshSoon(), 100);
        }"""
    )
    for _ in range(60):
        page.clock.run_for(500)
        while page.evaluate("underway"):
            continue  # the daemon answers by another clock than the page's
    assert 2 <= page.evaluate("asked") <= 8
    page.close()


def test_a_long_list_is_shown_a_hundred_at_a_time(daemon: Daemon, page: Page) -> None:
    jobs = [job(f"many-{number}", "true", members=4) for number in range(110)]
    daemon.client.submit("---\n".join(jobs), base_dir="/tmp")
    page.goto(f"{PREFIX}/queue?find=many-&page=2")
    expect(page.locator("#jobs tbody tr")).to_have_count(10)
    page.get_by_role("link", name="Previous").click()
    expect(page.locator("#jobs tbody tr")).to_have_count(100)
    expect(page.locator("caption")).to_contain_text("110 jobs, of which 1 to 100")


def test_a_check_takes_nothing(daemon: Daemon) -> None:
    told = daemon.client.check(job("never", "true"), base_dir="/tmp")
    assert json.dumps(told["jobs"]) == '[{"job": "never", "name": "never", "array": null}]'
    assert daemon.client.jobs(name="never") == []
