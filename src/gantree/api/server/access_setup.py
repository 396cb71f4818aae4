"""Assembles authentication and authorisation from the settings of a daemon."""

from gantree.api.access.access import Access, token_of
from gantree.api.access.access_file import AccessFile
from gantree.api.access.rate_limits import RateLimits
from gantree.api.access.tokens import Tokens
from gantree.api.server.settings import Settings
from gantree.executors.local.unix_users import RunAs, unix_user
from gantree.journal.access_store import AccessStore


def access_of(settings: Settings, book: AccessStore) -> Access:
    """Raises BadInput for a token file or an access file that cannot be used."""
    token = None if settings.listen is None else token_of(settings.listen.token_file)
    rates = RateLimits(settings.requests_per_s) if settings.requests_per_s else None
    tokens = Tokens(book)
    if settings.access_file is None:
        return Access(token, rates, tokens=tokens)
    from gantree.api.access.oidc import Providers  # noqa: PLC0415 - few daemons need what it imports

    file = AccessFile(settings.access_file)
    if settings.run_as_submitter:
        settings.state_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
        settings.state_dir.chmod(
            0o711
        )  # users pass through to the socket, and to what their jobs write
    return Access(token, rates, file, tokens, Providers(file), settings.run_as_submitter)


def run_as_of(access: Access) -> RunAs:
    """The Unix user that the jobs of a user run as, as the access file says at that moment."""
    file = access.file
    assert file is not None, "nobody says who the users are"
    return lambda user: unix_user(user, file.rules.unix_of_user.get(user))
