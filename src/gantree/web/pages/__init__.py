"""The pages that a daemon serves to a browser, beside its API: HTML made on the server, small scripts, no build step.

`routers()` gives what `build_app` mounts. Pages show what the views of `gantree.api` tell, to whom the API would tell
it; they write by sending the API's own requests from the browser. What is drawn as one file that stands alone is not
here, but in `gantree.web.fabric.page`.

How a page is added
-------------------
1. A module of this package with `router(backend) -> APIRouter`, made by `frame.page_router()`: its routes say what
   they need, go to the log-in page where there is no caller, and say errors as pages. `routers()` below lists it.
2. A template in `gantree/web/templates` that begins with `{% extends "base.html" %}` and fills the blocks `title`,
   `main` (one `<h1>` first) and, where it needs them, `styles` and `scripts`. The route gives
   `frame.render(request, caller, "mine.html", name=value)`. All that a template writes is escaped.
3. An `Entry` in `frame.NAVIGATION`, if it belongs there. The template says `{% set page = "/mine" %}` at its top.

In a template: `{{ base }}/queue` is a link (base is the prefix that a proxy serves the daemon under, "" where there is
none), `{{ asset("mine.js") }}` the address of a file in `gantree/web/static`, `{{ moment(at) }}` a time (seconds since
1970; null is a dash), `{{ span(seconds) }}` a duration, `{{ number(n) }}` a count. The content security policy is
`default-src 'self'`: no inline script, no `style=`, no `on...=`, nothing from elsewhere. SVG may have attributes, fill
and width among them. Colours are the variables at the top of `static/page.css`: they are right in light and dark.

How a page stays live
---------------------
An element with an id and the attribute `data-live` is replaced by the one with that id of the same page, fetched anew,
whenever the daemon has recorded something: at most once a second, and never while the page is hidden. `data-live="/x"`
fetches that address (below base) instead of the whole page: for a part that costs less, or more, than the rest.
`<body data-job="...">` (block `body`) follows one job only. Keep dialogs and forms outside of live elements; a focus,
an open `<details>` and a scroll inside are kept where these elements have an id. After a replacement the new element is
sent `gantree:replaced`, which bubbles; `import { say, api, base } from "./page.js"` has what a script of a page needs:
`say(text)` for screen readers, `api(method, path, body)` for the API, `base`.
"""

from gantree.api.server.app import Pages
from gantree.web.pages import assets, login, nodes, overview, submit
from gantree.web.pages.fleet import page as fleet
from gantree.web.pages.gantt import page as gantt
from gantree.web.pages.heat_map import page as heat_map
from gantree.web.pages.jobs import job
from gantree.web.pages.jobs import list as job_list
from gantree.web.pages.over_time import page as over_time
from gantree.web.pages.queues import page as queues
from gantree.web.pages.services import page as services


def routers() -> Pages:
    """The makers of all routers of pages."""
    return (
        assets.router,
        login.router,
        overview.router,
        job_list.router,
        job.router,
        services.router,
        submit.router,
        heat_map.router,
        gantt.router,
        queues.router,
        over_time.router,
        nodes.router,
        fleet.router,
    )
