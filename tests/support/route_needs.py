"""What the routes of the API need of a caller, for the tests of permissions."""

from gantree.api.access.permissions import Need

NEEDS = {
    Need.OPEN: """
        GET /healthz; GET /readyz; GET /v1/session/oidc; GET /v1/session/oidc/callback; POST /v1/session
    """,
    Need.KNOWN: """
        DELETE /v1/session; DELETE /v1/tokens/{token}; GET /v1/cluster; GET /v1/cluster/domains; GET
        /v1/events; GET /v1/facts; GET /v1/health; GET /v1/history/jobs; GET /v1/history/usage; GET
        /v1/history/waits; GET /v1/jobs; GET /v1/links; GET /v1/nodes; GET /v1/nodes/{node}; GET
        /v1/queues; GET /v1/services; GET /v1/session; GET /v1/tokens; GET /v1/usage; GET /v1/usage/book;
        GET /v1/usage/gpus; GET /v1/waste;
        POST /v1/tokens
    """,
    Need.SEE: """
        GET /v1/history/jobs/{word}; GET /v1/job-id; GET /v1/jobs/{word}; GET /v1/jobs/{word}/when; GET
        /v1/jobs/{word}/why; GET /v1/services/{service}; POST /v1/jobs/{word}/what-if
    """,
    Need.READ: """
        GET /v1/jobs/{word}/curve; GET /v1/jobs/{word}/logs; GET /v1/jobs/{word}/record
    """,
    Need.CHANGE: """
        POST /v1/jobs/{word}/cancel; POST /v1/jobs/{word}/extend; POST /v1/jobs/{word}/hold;
        POST /v1/jobs/{word}/priority; POST
        /v1/jobs/{word}/release; POST /v1/jobs/{word}/resume; POST /v1/jobs/{word}/scale; POST
        /v1/jobs/{word}/suspend; POST /v1/services/{service}/cancel; POST /v1/services/{service}/scale
    """,
    Need.SUBMIT: """
        POST /v1/jobs; POST /v1/jobs/check; POST /v1/jobs/forecast; POST /v1/jobs/{word}/rerun
    """,
    Need.ROUTE: """
        GET /v1/routes; POST /v1/routes/reports
    """,
    Need.SEE_ALL: """
        GET /v1/history/nodes; GET /metrics; GET /v1/policy; GET /v1/policy/versions; GET /v1/policy/versions/{number}
    """,
    Need.OPERATE: """
        GET /v1/audit; GET /v1/federation/{kind}/{namespace}/{name};
        POST /v1/federation/{kind}/{namespace}/{name}/cancel; POST /v1/federation/lease; POST /v1/jobs/{word}/exempt;
        GET /v1/jobs/{word}/defragment; POST /v1/jobs/{word}/defragment; POST /v1/links/degrade;
        POST /v1/links/restore; POST /v1/nodes/burn-in; POST /v1/nodes/{node}/cordon; POST /v1/nodes/{node}/drain; POST
        /v1/nodes/{node}/fault; POST /v1/nodes/{node}/labels; POST /v1/nodes/{node}/repair;
        POST /v1/nodes/{node}/uncordon; POST /v1/policy;
        POST /v1/policy/rollback; POST /v1/policy/what-if
    """,
}
"""What each route needs, as it was decided. A route that is not here is one that nobody has thought about."""
