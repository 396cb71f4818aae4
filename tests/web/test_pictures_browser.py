"""The pictures in a real browser: the map, also of 16,384 GPUs, the Gantt, queues, nodes; by mouse, by keys."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from math import prod
from pathlib import Path
from urllib.parse import quote
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from gantree.api.access.access import EVERYTHING, Access, Caller, Transport
from gantree.api.gpu_metrics.gpu_counters import GpuCounters
from gantree.model.access import grant_of
from gantree.model.jobs import Job
from gantree.policy.rules import Policy, QueueRule
from gantree.telemetry.gpu_use import GpuUse
from gantree.testing.builders import cluster, job
from support.chromium import Complaints, chromium
from support.page_rules import AUDIT
from support.pretended import TOKEN, PretendedSite

EVIL = "\"><img src=x onerror=window.taken=1>'"
SMALL, LARGE = (2, 2, 16), (4, 16, 32)
"""Sites by their spines, leaves of each, and nodes of each of those, with 8 GPUs."""
ANNS = "anns-own-token"
PAGES = (
    "/cluster",
    "/gantt",
    "/gantt?by=node",
    "/queues",
    "/history",
    "/fleet",
    "/nodes",
    "/nodes/n3",
)
POLICY = Policy(
    queues=(
        QueueRule("research", weight=2.0, guarantee={"gpus": 128}, cohort="all"),
        QueueRule("prod", guarantee={"gpus": 64}, limit={"gpus": 256}, cohort="all"),
    ),
    share_users=True,
)


class TwoTokens(Access):
    """An operator, and ann, who may hand in jobs and see her own."""

    async def caller(self, door: Transport, authorization: str | None, cookie: str = "") -> Caller:
        if authorization == f"Bearer {ANNS}":
            return Caller("ann", (grant_of("user"),), "tcp", "t1")
        return Caller("operator", EVERYTHING, "tcp", "t2")


def of(name: str, queue: str, user: str, members: int, gpus: int) -> Job:
    return replace(job(name, members, gpus, time_limit_s=7200.0), queue=queue, user=user)


@contextmanager
def site_of(place: Path, size: tuple[int, int, int]) -> Iterator[PretendedSite]:
    """Eight jobs run, one waits; a node is cordoned before any of them came."""
    with PretendedSite(place, cluster(*size), POLICY, TwoTokens(TOKEN)) as site:
        site.ask(lambda controller: controller.nodes.cordon("n40", "a fan is broken"))
        site.settle()
        site.submit(
            *(of(f"large-{n}", "research", "bob", 4 * n, 8) for n in (1, 2, 4)),
            *(of(f"anns-{n}", "prod", "ann", 2 * n, 8) for n in (1, 2)),
            *(of(f"small-{n}", "research", "carl", 1, n) for n in (1, 2, 4)),
            of("whole-site", "research", "bob", prod(size), 8),
        )
        yield site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PretendedSite]:
    with site_of(tmp_path_factory.mktemp("pictures"), SMALL) as site:
        yield site


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def context_of(browser: Browser, site: PretendedSite, token: str) -> BrowserContext:
    shown = {"Authorization": f"Bearer {token}"}
    context = browser.new_context(base_url=site.url, extra_http_headers=shown)
    context.set_default_timeout(300_000)
    expect.set_options(timeout=300_000)
    return context


@pytest.fixture(scope="module")
def operator(browser: Browser, site: PretendedSite) -> Iterator[BrowserContext]:
    context = context_of(browser, site, TOKEN)
    yield context
    context.close()


@pytest.fixture
def page(operator: BrowserContext) -> Iterator[Page]:
    """A page that must have nothing to complain of at the end."""
    page, complaints = operator.new_page(), Complaints()
    complaints.listen_to(page)
    yield page
    page.close()
    assert complaints == []


def open_map(page: Page, query: str = "") -> None:
    page.goto(f"/cluster{query}")
    page.locator("#map[data-drawn]").wait_for()


COLOURS = """(canvas) => {
  const all = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data, seen = {};
  for (let i = 0; i < all.length; i += 4) {
    const key = `${all[i]},${all[i + 1]},${all[i + 2]}`;
    seen[key] = (seen[key] || 0) + 1;
  }
  return Object.values(seen).filter((count) => count > 100).length;
}"""


def test_the_map_draws_all_of_16384_gpus_and_the_table_tells_the_same_in_numbers(
    browser: Browser, tmp_path: Path
) -> None:
    with site_of(tmp_path, LARGE) as site:
        context = context_of(browser, site, TOKEN)
        page, complaints = context.new_page(), Complaints()
        complaints.listen_to(page)
        open_map(page)
        assert page.locator("#map").evaluate(COLOURS) > 5
        whole = page.locator("#domain-0 td")
        expect(whole.nth(0)).to_have_text("16,384")
        expect(whole.nth(1)).to_have_text("16,376")
        expect(page.locator("table tbody tr")).to_have_count(1 + 4 + 64)
        expect(page.locator("#legend")).to_contain_text("large-4")
        context.close()
    assert complaints == []


def test_keys_go_from_gpu_to_gpu_and_to_the_job(page: Page) -> None:
    open_map(page)
    page.locator("#map").focus()
    page.keyboard.press("Home")
    expect(page.locator("#told")).to_contain_text("Node n0, GPU 0")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#told")).to_contain_text("Node n0, GPU 1")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#told")).to_contain_text("Node n1, GPU 0")
    page.keyboard.press("PageDown")
    expect(page.locator("#told")).to_contain_text("Node n16, GPU 0")
    expect(page.locator("#said")).to_contain_text("Node n16")
    found = re.search(r"job ([\w-]+), running", page.locator("#told").inner_text())
    assert found is not None
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{found[1]}")


def test_a_click_on_a_gpu_leads_to_its_job_and_with_shift_to_its_node(page: Page) -> None:
    open_map(page)
    box = page.locator("#map").bounding_box()
    assert box is not None
    told, x, y = page.locator("#told"), box["x"], box["y"]
    for step in range(4, 200, 3):
        page.mouse.move(x + step, y + step)
        if "running" in told.inner_text():
            break
    found = re.search(r"Node (n\d+), .* job ([\w-]+), running", told.inner_text())
    assert found is not None
    page.mouse.click(x + step, y + step)
    page.wait_for_url(f"**/jobs/{found[2]}")
    open_map(page)
    page.keyboard.down("Shift")
    page.mouse.click(x + step, y + step)
    page.keyboard.up("Shift")
    page.wait_for_url(f"**/nodes/{found[1]}")


def test_a_search_counts_the_nodes_and_the_legend_searches(page: Page) -> None:
    open_map(page, "?find=large-2")
    expect(page.locator("#matches")).to_have_text("8 nodes")
    page.locator("#seek").fill("cordoned")
    expect(page.locator("#matches")).to_have_text("1 node")
    page.get_by_role("radio", name="queues").check()
    page.locator("#legend").get_by_role("button", name=re.compile("^prod")).click()
    expect(page.locator("#matches")).to_have_text("6 nodes")
    for each in ("health", "use"):
        page.get_by_role("radio", name=each).check()
        expect(page.locator("#legend li").first).to_be_visible()
    page.locator("#level").select_option("each leaf")
    assert page.locator("#map").evaluate(COLOURS) > 2


def test_gpus_tell_how_busy_they_are_in_colour_in_words_and_in_the_table(
    browser: Browser, tmp_path: Path
) -> None:
    told = {gpu: GpuUse(gpu / 8, 10.0 * gpu, 80.0, 100.0 * gpu, 60.0) for gpu in range(7)}
    counters = GpuCounters(here=("n0", lambda: told))
    made = PretendedSite(tmp_path, cluster(1, 1, 2), None, TwoTokens(TOKEN), counters)
    with made as site:
        site.submit(of("bobs", "research", "bob", 1, 4), of("anns", "prod", "ann", 1, 4))
        complaints = Complaints()
        for token, of_all in ((TOKEN, "37 %"), (ANNS, "62 %")):  # GPUs 0 to 3 are bob's
            context = context_of(browser, site, token)
            page = context.new_page()
            complaints.listen_to(page)
            open_map(page)
            page.get_by_role("radio", name="use").check()
            busy = page.locator("#legend").get_by_role("button", name="busy 50 to 75 %")
            expect(busy).to_contain_text("2")
            page.locator("#map").focus()
            page.keyboard.press("Home")
            for _ in range(5):
                page.keyboard.press("ArrowRight")
            expect(page.locator("#told")).to_contain_text(
                "job anns, running (queue prod, user ann, 4 GPUs) \u00b7 62 % busy, 50 of 80 GiB, 500 W, 60 \u00b0C"
            )
            page.keyboard.press("Home")
            page.keyboard.press("ArrowRight")
            words = page.locator("#told")
            if token == ANNS:
                expect(words).not_to_contain_text("busy")
            else:
                expect(words).to_contain_text("12 % busy, 10 of 80 GiB")
            expect(page.locator("#domain-0 .busy")).to_have_text(of_all)
            busy.click()
            expect(page.locator("#matches")).to_have_text("1 node")
            assert page.evaluate(AUDIT) == []
            context.close()
    assert complaints == []


UNDER_OTHER_HEADS = """() => [...document.querySelectorAll("table tbody tr [data-label]")].filter((cell) =>
  cell.closest("table").querySelectorAll("thead th")[cell.cellIndex].textContent !== cell.dataset.label
).map((cell) => cell.closest("tr").id)"""


@pytest.mark.parametrize("path", ["/cluster", "/nodes"])
def test_numbers_stand_under_the_head_that_says_what_they_are(page: Page, path: str) -> None:
    page.goto(path)
    assert page.evaluate(UNDER_OTHER_HEADS) == []


def test_what_changes_of_a_domain_goes_where_it_stood(page: Page, site: PretendedSite) -> None:
    open_map(page)
    leaf = page.locator("tbody tr", has_text="leaf").last
    cells = "(row) => [...row.cells].map((cell) => [cell.dataset.label, cell.textContent])"
    before = leaf.evaluate(cells)
    site.submit(of("passing", "prod", "bob", 4, 8))
    site.end("passing")
    page.wait_for_timeout(2500)
    assert leaf.evaluate(cells) == before
    page.reload()
    assert page.locator("tbody tr", has_text="leaf").last.evaluate(cells) == before


def test_what_changes_is_seen_without_loading_the_page_again(
    page: Page, site: PretendedSite
) -> None:
    open_map(page, "?find=short")
    expect(page.locator("#matches")).to_have_text("0 nodes")
    free = page.locator("#domain-0 td").nth(2)
    before = free.inner_text()
    site.submit(of("short", "prod", "bob", 4, 8))
    expect(page.locator("#matches")).to_have_text("4 nodes")
    expect(free).not_to_have_text(before)
    site.end("short")
    expect(page.locator("#matches")).to_have_text("0 nodes")
    expect(free).to_have_text(before)


def test_an_operator_cordons_a_node_with_a_reason_and_opens_it_again(page: Page) -> None:
    page.goto("/nodes?find=n60")
    page.get_by_role("button", name="Cordon n60").click()
    page.get_by_label("Reason").fill("smells of smoke")
    page.get_by_role("dialog").get_by_role("button", name="Cordon").click()
    row = page.locator("#nodes tbody tr")
    expect(row).to_contain_text("cordoned smells of smoke")
    open_map(page, "?find=cordoned")
    expect(page.locator("#matches")).to_have_text("2 nodes")
    page.goto("/nodes/n60")
    page.get_by_role("button", name="Uncordon n60").click()
    page.get_by_role("dialog").get_by_role("button", name="Uncordon").click()
    expect(page.locator("#node")).to_contain_text("ready")


def test_an_idle_job_is_kept_with_one_click_and_cancelled_with_two(
    page: Page, site: PretendedSite
) -> None:
    site.submit(of("notebook", "research", "carl", 1, 1))
    site.idle("notebook")
    page.goto("/fleet")
    row = page.locator("tr", has_text="notebook")
    row.get_by_role("button", name="Keep").click()
    expect(page.locator("#said")).to_have_text("notebook is not reclaimed for 2 hours")
    row.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Confirm").click()
    expect(page.locator("#over-time")).to_contain_text("No running job is known to be idle.")


def test_the_gantt_shows_what_runs_and_leads_to_the_job(page: Page) -> None:
    page.goto("/gantt")
    rows = page.locator("svg.gantt[role=group]")
    expect(rows.locator("a[href$='/jobs/large-4'] rect.bar.running")).to_have_count(1)
    expect(rows.locator("a[href$='/jobs/large-4'] rect.bar.limit")).to_have_count(1)
    page.get_by_text("As a table").click()
    expect(page.locator("#gantt-table")).to_contain_text("large-4, attempt 1: runs")
    page.goto("/gantt?by=node&find=n9&zoom=1h")
    expect(rows).to_contain_text("n9")
    expect(rows).not_to_contain_text("n8")
    page.goto("/gantt?find=large-2")
    page.locator("svg.gantt a[href$='/jobs/large-2'] rect.running").first.focus()
    page.locator("svg.gantt a[href$='/jobs/large-2']").first.click()
    page.wait_for_url("**/jobs/large-2")


def test_the_gantt_tells_all_its_times_in_the_zone_of_who_looks(
    browser: Browser, site: PretendedSite
) -> None:
    shown = {"Authorization": f"Bearer {TOKEN}"}
    context = browser.new_context(
        base_url=site.url, extra_http_headers=shown, timezone_id="Asia/Kolkata"
    )
    page = context.new_page()
    page.goto("/gantt")
    title = page.locator("a[href$='/jobs/large-4'] rect.running title")
    since = float(title.get_attribute("data-since") or 0)
    local = datetime.fromtimestamp(since, ZoneInfo("Asia/Kolkata"))
    expect(title).to_contain_text(f"{local:%I:%M}")
    expect(title).not_to_contain_text("UTC")
    context.close()


def test_queues_tell_what_is_owed_used_and_borrowed(page: Page) -> None:
    page.goto("/queues")
    row = page.get_by_role("row", name=re.compile(r"^research "))
    expect(row).to_contain_text("128")
    expect(row.get_by_role("img", name=re.compile("borrowed"))).to_be_visible()
    expect(page.get_by_role("row", name=re.compile(r"^ann user"))).to_contain_text("48")


@pytest.mark.parametrize("path", PAGES)
def test_every_picture_keeps_the_rules_for_all_readers_in_both_schemes_and_on_a_phone(
    page: Page, path: str
) -> None:
    page.goto(path)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(AUDIT) == []
    page.set_viewport_size({"width": 375, "height": 740})
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 375


def test_a_map_fits_a_narrower_window_also_before_it_is_drawn_anew(page: Page) -> None:
    page.add_init_script("addEventListener('resize', event => event.stopImmediatePropagation())")
    open_map(page)
    page.set_viewport_size({"width": 375, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_text_of_users_and_of_the_site_is_text_wherever_a_page_shows_it(
    browser: Browser, tmp_path: Path
) -> None:
    site = cluster(leaves=1, nodes=2)
    first, second = site.nodes
    nodes = (replace(first, name=f"n0{EVIL}", labels=(("evil", EVIL),)), second)
    with PretendedSite(tmp_path, replace(site, name=EVIL, nodes=nodes)) as evil:
        evil.submit(replace(job("runs", 1, 8), user=EVIL, queue="q<b>"), job("waits", 9, 8))
        evil.ask(lambda controller: controller.nodes.cordon(second.name, EVIL))
        evil.settle()
        page, complaints = context_of(browser, evil, TOKEN).new_page(), Complaints()
        complaints.listen_to(page)
        found = quote(EVIL)
        for path in (f"/cluster?find={found}", f"/gantt?by=node&find={found}", f"/nodes?find={found}",
                     f"/nodes/n0{found}", "/jobs/runs", "/jobs/waits", "/queues", f"/login?next=/{found}"):  # fmt: skip
            page.goto(path)
            if path.startswith("/cluster"):
                page.locator("#map[data-drawn]").focus()
                page.keyboard.press("Home")
                expect(page.locator("#told")).to_contain_text(EVIL)
            assert page.locator("[onerror]").count() == 0, path
        page.context.close()
    assert complaints == []


def test_somebody_sees_that_others_hold_gpus_and_not_who(
    browser: Browser, site: PretendedSite
) -> None:
    context = context_of(browser, site, ANNS)
    page = context.new_page()
    open_map(page)
    legend = page.locator("#legend")
    expect(legend).to_contain_text("anns-2")
    expect(legend).to_contain_text("taken")
    expect(legend).not_to_contain_text("large")
    for path in ("/gantt", "/gantt?by=node", "/queues", "/nodes"):
        page.goto(path)
        told = page.content()
        assert "large-" not in told and "carl" not in told, path
    assert page.get_by_role("button", name=re.compile("Cordon")).count() == 0
    context.close()
