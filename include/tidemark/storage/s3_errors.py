"""The one seam where errors of S3 become ours. Only codes and hosts are told: texts of others may hold secrets."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from botocore import exceptions as boto
from botocore.exceptions import BotoCoreError, ClientError

from tidemark.errors import NotFoundError, StoreError, TidemarkError, UsageError

_INTACT = "every completed checkpoint and every complete export is intact."
_NO_CREDENTIALS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.ProfileNotFound,
    boto.TokenRetrievalError,
    boto.SSOError,
)
_CUT = (boto.IncompleteReadError, boto.ReadTimeoutError, boto.ResponseStreamingError, boto.ConnectionClosedError)
_REFUSED = frozenset({"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"})
_DENIED = frozenset({"AccessDenied", "AllAccessDisabled", "AccountProblem", "403"})
_TAKEN = frozenset({"PreconditionFailed", "ConditionalRequestConflict"})
_FAILING = 500


class BodyCutOffError(Exception):
    """A reply began well, and its body broke off; boto3 repeats requests, but not the reading of replies."""


@contextmanager
def body_told() -> Iterator[None]:
    """Tells what breaks off in the block, the reading of a body, from requests that were never answered.

    Raises:
        BodyCutOffError: it may be read again.
    """
    try:
        yield
    except _CUT as error:
        raise BodyCutOffError from error


def code_of(error: ClientError) -> str:
    """What a reply calls its error: a word of S3's, or the status, where a reply has no body."""
    return str(error.response.get("Error", {}).get("Code", "unknown"))


def is_lost(error: ClientError | BotoCoreError) -> bool:
    """Whether the very first try of a conditional put met another object: boto3 did not repeat the request."""
    if not isinstance(error, ClientError) or code_of(error) != "PreconditionFailed":
        return False
    return bool(error.response.get("ResponseMetadata", {}).get("RetryAttempts") == 0)


def is_unsettled(error: ClientError | BotoCoreError) -> bool:
    """Whether a conditional put may have happened all the same, in this try or in an earlier one."""
    if isinstance(error, ClientError):
        return code_of(error) in _TAKEN or _status(error) >= _FAILING
    return not isinstance(error, _NO_CREDENTIALS)


@contextmanager
def mapped(verb: str, where: str, endpoint: str) -> Iterator[None]:
    """Errors of boto3's in the block become ours.

    Args:
        verb: what was tried.
        where: with what, a URL for people.
        endpoint: of the store.

    Raises:
        UsageError: no credentials, or AWS's variables do not fit.
        NotFoundError: no such bucket.
        StoreError: anything else.
    """
    try:
        yield
    except ClientError as error:
        raise _answered(verb, where, error) from error
    except BotoCoreError as error:
        raise _unanswered(verb, where, endpoint, error) from error
    except BodyCutOffError as error:
        raise StoreError(
            f"could not {verb} {where}: replies break off in their middle",
            safe=_INTACT,
            next="look at the network and at what stands before the store, then repeat the command.",
        ) from error


def unfit(error: BotoCoreError | ValueError) -> UsageError:
    """What is said where no request can be made: no credentials, or variables and profiles that are none."""
    why = type(error).__name__
    if isinstance(error, _NO_CREDENTIALS):
        return UsageError(
            f"no credentials for S3 ({why})",
            safe=_INTACT,
            next="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run where a role gives some.",
        )
    return UsageError(
        f"settings of S3 do not fit ({why})",
        safe=_INTACT,
        next="look at TIDEMARK_S3_ENDPOINT, TIDEMARK_S3_REGION, AWS's own variables and its configuration file.",
    )


def _answered(verb: str, where: str, error: ClientError) -> TidemarkError:
    code = code_of(error)
    if code == "NoSuchBucket":
        bucket = urlsplit(where).netloc
        return NotFoundError(
            f"no bucket {bucket}",
            safe=_INTACT,
            next="make it, or correct the URL; TIDEMARK_S3_ENDPOINT says whose it is.",
        )
    if code in _REFUSED:
        return StoreError(
            f"S3 does not take the credentials ({code}): could not {verb} {where}",
            safe=_INTACT,
            next="renew them where AWS's clients look for them (variables, profile, role), then repeat the command.",
        )
    if code in _DENIED:
        return StoreError(
            f"S3 denies access ({code}): could not {verb} {where}",
            safe=_INTACT,
            next="allow s3:ListBucket, s3:GetObject, s3:PutObject, s3:DeleteObject for these credentials, then repeat.",
        )
    return StoreError(
        f"could not {verb} {where}: S3 says {code} (HTTP {_status(error)})",
        safe=_INTACT,
        next="repeat the command; if that does not help, look at the store.",
    )


def _unanswered(verb: str, where: str, endpoint: str, error: BotoCoreError) -> TidemarkError:
    why = type(error).__name__
    if isinstance(error, _NO_CREDENTIALS):
        return unfit(error)
    at = urlsplit(endpoint)
    host = f"{at.hostname}:{at.port}" if at.port else at.hostname or "its endpoint"
    return StoreError(
        f"S3 does not answer at {host} ({why}): could not {verb} {where}",
        safe=_INTACT,
        next="check TIDEMARK_S3_ENDPOINT, TIDEMARK_S3_REGION and the network, then repeat the command.",
    )


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
