"""Every problem code of the gateway: what it means, and what to do about it. Codes stay."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """One code; `retryable`: the same request may well succeed later."""

    code: str
    status: int
    title: str
    meaning: str
    remedy: str
    retryable: bool = False


_MEND = "Mend the request; `errors` has the place and the fault."
_ASK = "The problem says who can help: `how_to_ask`, `waiting_for` or `reason`."
_AGAIN = "Send the same request again after `Retry-After`."
_SMALLER = "Ask for less, or for another queue: `limit` has its name, its value and what was asked."
_REPORT = "Report it to the site's administrators with the `request_id`."

_ALL = (
    # The request itself.
    Code("invalid_request", 400, "Invalid request", "A header or parameter is wrong.", _MEND),
    Code("malformed", 400, "Not HTTP", "The request is not HTTP as it should be.", "Mend it."),
    Code("body", 400, "Body cut short", "The body is not as its headers say.", "Send all of it."),
    Code("not_json", 400, "Not JSON", "The body is not JSON.", "Send JSON (RFC 8259)."),
    Code("invalid_body", 400, "Invalid body", "Fields are unknown, missing or wrong.", _MEND),
    Code("invalid_spec", 400, "Invalid job", "The specification contradicts itself.", _MEND),
    Code("invalid_cursor", 400, "Invalid cursor", "The cursor is not ours.", "Begin anew."),
    Code(
        "invalid_parameter", 400, "Invalid parameter", "A query parameter's value is wrong.", _MEND
    ),
    Code(
        "unknown_parameter",
        400,
        "Unknown parameter",
        "This route has no such query parameter; ignoring a filter would select everything.",
        _MEND,
    ),
    Code("invalid_path", 400, "Invalid path", "The path leaves the job's directory.", _MEND),
    Code("cluster_needed", 400, "Which cluster?", "There are several.", "Name one: `cluster`."),
    Code("unknown_cluster", 400, "Unknown cluster", "It is not here.", "See `GET /v1/clusters`."),
    Code(
        "too_slow",
        408,
        "Too slow",
        "The body did not come in time.",
        "Send it again.",
        retryable=True,
    ),
    Code("too_large", 413, "Too large", "The body is over the limit.", "Send less."),
    Code(
        "range_not_satisfiable",
        416,
        "No such bytes",
        "None of the bytes that were asked for are there.",
        "Ask for less: `Content-Range` says how many there are.",
    ),
    Code("expectation_failed", 417, "Expectation failed", "`Expect` is not met.", "Leave it out."),
    # Who asks.
    Code("missing_token", 401, "No token", "There is no bearer token.", "Send one."),
    Code(
        "invalid_token",
        401,
        "Token refused",
        "It is expired, for another audience, of another issuer, or not signed as it should be.",
        "Get a new one for this audience; `detail` says what is wrong.",
    ),
    Code(
        "insufficient_user_authentication",
        401,
        "Another login is needed",
        "The site asks for a stronger or a more recent login (RFC 9470).",
        "Log in as `acr_values` and `max_age` say.",
    ),
    Code("forbidden", 403, "Forbidden", "The caller may not do this.", "See `detail`."),
    Code("account_unknown", 403, "No account", "The caller has none here.", _ASK),
    Code("account_pending", 403, "Account pending", "It is not ready yet.", _ASK),
    Code("account_blocked", 403, "Account blocked", "The site has blocked it.", _ASK),
    Code("suspended", 403, "Suspended", "The site has suspended the caller.", _ASK),
    Code("no_rule", 403, "No rule", "No rule of the site gives this.", "See `rules`."),
    # What is asked for.
    Code("not_found", 404, "Not found", "There is no such address.", "See the reference."),
    Code("job_unknown", 404, "No such job", "The caller has no such job.", "See `GET /v1/jobs`."),
    Code("no_output", 404, "No output", "The job has printed nothing yet.", "Ask later."),
    Code("file_unknown", 404, "No such file", "It is not in the job's directory.", "List it."),
    Code("method_not_allowed", 405, "Method not allowed", "See `Allow`.", "Use another."),
    Code(
        "files_removed",
        410,
        "Files removed",
        "The files of jobs that ended long ago are removed.",
        "Nothing: `files_removed_at` says when it was.",
    ),
    Code("conflict", 409, "Conflict", "It contradicts what is there.", "See `detail`."),
    Code(
        "request_in_flight",
        409,
        "Being answered",
        "An earlier request with this Idempotency-Key has not been answered yet.",
        _AGAIN,
        retryable=True,
    ),
    Code("job_ended", 409, "It has ended", "The job has ended, or is about to.", "Nothing."),
    Code(
        "in_queue", 409, "In the queue", "The cluster has the job already.", "Cancel it, or wait."
    ),
    Code("seal_conflict", 409, "Sealed otherwise", "Never seen but by a bug.", _REPORT),
    Code(
        "delegation_ended",
        409,
        "Delegation ended",
        "The person has ended what this job may do without a token.",
        "Submit the job again.",
    ),
    Code("not_a_file", 409, "No file", "Links and special files are not opened.", "Take another."),
    Code("not_a_directory", 409, "No directory", "A part of the path is none.", "Take another."),
    Code(
        "refused_by_cluster", 409, "Refused", "The cluster's file system says no.", "See `detail`."
    ),
    Code(
        "precondition_failed",
        412,
        "It has changed",
        "`If-Match` or `If-None-Match` does not hold.",
        "Read it again.",
    ),
    # What this site cannot do.
    Code("unprocessable", 422, "Not possible here", "This site cannot do it.", "See `detail`."),
    Code("unknown_queue", 422, "Unknown queue", "It is not there.", "See `GET /v1/clusters`."),
    Code("no_containers", 422, "No containers", "This cluster runs none.", "Take another cluster."),
    Code("too_many_gpus", 422, "Too many GPUs", "No node has so many.", _SMALLER),
    Code("too_many_cores", 422, "Too many cores", "No node has so many.", _SMALLER),
    Code("too_much_memory", 422, "Too much memory", "No node has so much.", _SMALLER),
    Code("too_many_nodes", 422, "Too many nodes", "The queue has fewer.", _SMALLER),
    Code("too_long", 422, "Too long", "The queue gives less time.", _SMALLER),
    Code("quota", 422, "No room left", "The caller's quota on the cluster is full.", "Make room."),
    Code(
        "idempotency_key_reused",
        422,
        "Key used for something else",
        "This Idempotency-Key came with other bytes before.",
        "Take a new key, or send the first body again.",
    ),
    Code(
        "too_many_requests", 429, "Too often", "The caller asks too often.", _AGAIN, retryable=True
    ),
    # Ours, and what we depend on.
    Code("internal", 500, "A bug", "Something went wrong on our side.", _REPORT),
    Code(
        "unavailable", 503, "Not now", "Something that is needed is away.", _AGAIN, retryable=True
    ),
    Code(
        "registry_away", 503, "Not now", "The registry of accounts is away.", _AGAIN, retryable=True
    ),
    Code(
        "file_changed", 503, "It has changed", "The file changed meanwhile.", _AGAIN, retryable=True
    ),
    Code(
        "session_program_outdated",
        503,
        "Older session program",
        "The login node's session program is older than this gateway.",
        _REPORT,
        retryable=True,
    ),
)

CODES: Mapping[str, Code] = {code.code: code for code in _ALL}
"""Each code by its word."""
