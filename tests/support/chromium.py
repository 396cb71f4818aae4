"""A real browser for the tests of the pages: Chromium as the machine has it, headless, driven by Playwright."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first has no windows, and takes a third of the processor time."""


def chromium_path() -> str:
    """Where Chromium is. Without one a test is skipped, but fails where CI=true promises one."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        missing = "no Chromium is installed (Debian: apt-get install chromium-headless-shell; Ubuntu: chromium)"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{missing}, and CI=true says that there is one")
        pytest.skip(missing)
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser; as root it cannot have its own sandbox."""
    path = chromium_path()
    flags = [
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
    ]
    if os.geteuid() == 0:
        flags.append("--no-sandbox")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        try:
            yield browser
        finally:
            browser.close()


class Complaints(list[str]):
    """What a page complained of: errors of scripts, and whatever the content security policy forbade."""

    def listen_to(self, page: Page) -> None:
        """Note them from now on. An answer with a status of an error is none: pages provoke and show these."""
        page.on("pageerror", lambda error: self.append(str(error)))
        page.on("console", lambda said: self._note(said.type, said.text))

    def _note(self, kind: str, text: str) -> None:
        if kind == "error" and "Failed to load resource" not in text:
            self.append(text)
