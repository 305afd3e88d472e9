"""Translates errors of S3. Messages contain only codes and hosts, because foreign texts may hold secrets."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from botocore import exceptions as boto
from botocore.exceptions import BotoCoreError, ClientError

from tidemark.errors import NotFoundError, StoreError, TidemarkError, UsageError

_INTACT = "every completed checkpoint and export is intact."
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
_FULL = frozenset({"XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"})
_FAILING, _INSUFFICIENT_STORAGE = 500, 507


class BodyCutOffError(Exception):
    """A reply started well, and its body broke off; boto3 repeats requests, but does not read replies again."""


@contextmanager
def translate_body_errors() -> Iterator[None]:
    """Distinguishes a body that breaks off in the block from a request without an answer.

    Raises:
        BodyCutOffError: the body broke off; it may be read again.
    """
    try:
        yield
    except _CUT as error:
        raise BodyCutOffError from error


def code_of(error: ClientError) -> str:
    """Returns the error code of a reply: S3's code, or the status if the reply has no body."""
    return str(error.response.get("Error", {}).get("Code", "unknown"))


def is_lost(error: ClientError | BotoCoreError) -> bool:
    """Whether the first try of a conditional put met another object: boto3 did not repeat the request."""
    return isinstance(error, ClientError) and code_of(error) == "PreconditionFailed" and _is_first_try(error)


def is_unsettled(error: ClientError | BotoCoreError) -> bool:
    """Whether a conditional put may have succeeded despite the error, in this try or an earlier one."""
    if isinstance(error, ClientError):
        is_failing = _status(error) >= _FAILING and not _is_full(error)
        return is_failing or code_of(error) in _TAKEN or not _is_first_try(error)
    return not isinstance(error, _NO_CREDENTIALS)


@contextmanager
def translate_s3_errors(verb: str, where: str, endpoint: str) -> Iterator[None]:
    """Translates errors of boto3 in the block.

    Args:
        verb: the attempted operation.
        where: its object, as a URL for people.
        endpoint: of the store.

    UsageError: there are no credentials, or AWS's variables are invalid.
    NotFoundError: the bucket does not exist.
    StoreError: any other error.
    """
    try:
        yield
    except ClientError as error:
        raise _answered(verb, where, error) from error
    except BotoCoreError as error:
        raise _unanswered(verb, where, endpoint, error) from error
    except BodyCutOffError as error:
        raise StoreError(
            f"could not {verb} {where}: replies break off in the middle",
            safe=_INTACT,
            next="check the network and any proxy in front of the store, then repeat the command.",
        ) from error


def unfit(error: BotoCoreError | ValueError) -> UsageError:
    """Returns the error if no request can be made: no credentials, or invalid variables and profiles."""
    why = type(error).__name__
    if isinstance(error, _NO_CREDENTIALS):
        return UsageError(
            f"no credentials for S3 ({why})",
            safe=_INTACT,
            next="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run where a role provides them.",
        )
    return UsageError(
        f"invalid S3 settings ({why})",
        safe=_INTACT,
        next="check TIDEMARK_S3_ENDPOINT, TIDEMARK_S3_REGION, AWS's own variables and its configuration file.",
    )


def _answered(verb: str, where: str, error: ClientError) -> TidemarkError:
    code = code_of(error)
    if code == "NoSuchBucket":
        bucket = urlsplit(where).netloc
        return NotFoundError(
            f"no bucket {bucket}",
            safe=_INTACT,
            next="create it, or correct the URL or TIDEMARK_S3_ENDPOINT.",
        )
    if code in _REFUSED:
        return StoreError(
            f"S3 does not accept the credentials ({code}): could not {verb} {where}",
            safe=_INTACT,
            next="renew the credentials (variables, profile or role), then repeat the command.",
        )
    if code in _DENIED:
        return StoreError(
            f"S3 denies access ({code}): could not {verb} {where}",
            safe=_INTACT,
            next="allow s3:ListBucket, s3:GetObject, s3:PutObject, s3:DeleteObject for these credentials, then repeat.",
        )
    if _is_full(error):
        return StoreError(
            f"the store is full ({code}): could not {verb} {where}",
            safe=_INTACT,
            next="make room in the store or raise the bucket's quota, then run the same command again.",
        )
    return StoreError(
        f"could not {verb} {where}: S3 answers {code} (HTTP {_status(error)})",
        safe=_INTACT,
        next="repeat the command; if that does not help, check the store.",
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


def _is_full(error: ClientError) -> bool:
    return code_of(error) in _FULL or _status(error) == _INSUFFICIENT_STORAGE


def _is_first_try(error: ClientError) -> bool:
    """Whether boto3 did not repeat the request: an earlier try may have succeeded although its reply was lost."""
    return bool(error.response.get("ResponseMetadata", {}).get("RetryAttempts") == 0)


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
