"""To import this builds the application once, with its pages: a daemon that is forked later starts faster."""

from unittest.mock import MagicMock

from gantree.api.access.access import Access
from gantree.api.server.app import build_app
from gantree.web.pages import routers
from support.type_adapters import share_type_adapters

share_type_adapters()
build_app(MagicMock(), Access(), routers())
