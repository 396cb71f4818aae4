"""What a server answers to one who asks what it may do itself: a SelfSubjectAccessReview, which is kept nowhere."""

from support.kubernetes.server.access import User
from support.kubernetes.server.statuses import Json

PATH = ("apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews")


def reviewed(user: User | None, review: Json) -> Json:
    """The review with its status. On a server without users everybody may do everything."""
    asked = review["spec"]["resourceAttributes"]
    below = asked.get("subresource", "")
    resource = f"{asked['resource']}/{below}" if below else asked["resource"]
    may = user is None or user.may(
        asked["verb"], asked.get("group", ""), resource, asked.get("namespace", "")
    )
    return {**review, "metadata": {}, "status": {"allowed": may}}
