"""Whose trouble it is when an Iceberg table or its catalog cannot be used; what files do is said in sink_errors.py.

A catalog that does not answer may do so later. What it answers is meant for good. Metadata that cannot be read are
their table's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyiceberg import exceptions as iceberg

from wal2lake.errors import AuthError, ConfigError, RightsError, SinkError, Wal2LakeError
from wal2lake.sinks.base import SinkConflictError, SinkUnavailableError, TargetError
from wal2lake.sinks.sink_errors import GivenError, failure

_REFUSED: Final = (iceberg.UnauthorizedError, iceberg.OAuthError, iceberg.AuthorizationExpiredError)
_PASSING: Final = (
    iceberg.ServerError,
    iceberg.ServiceUnavailableError,
    iceberg.TooManyRequestsError,
    iceberg.CommitStateUnknownException,
    iceberg.WaitingForLockException,
)
_LOST_RACE: Final = (iceberg.CommitFailedException, iceberg.TableAlreadyExistsError)
_CONFIG: Final = (iceberg.NoSuchPropertyException, iceberg.NotInstalledError)
_UNREADABLE: Final = (
    *(iceberg.ValidationError, ValueError, LookupError, EOFError, AssertionError, TypeError, AttributeError),
)
_LONGEST: Final = 300  # characters of what a library says


@contextmanager
def mapped_errors(uri: str) -> Iterator[None]:
    """Let failures of pyiceberg, of its catalogs' libraries and of the system leave the block as errors of our tree."""
    try:
        yield
    except Wal2LakeError:
        raise
    except GivenError as error:
        assert error.__cause__ is not None
        raise error.__cause__ from None
    except Exception as error:
        mapped = _mapped(uri, error)
        if mapped is None:
            raise
        raise mapped from error


@contextmanager
def reading_metadata(uri: str) -> Iterator[None]:
    """What pyiceberg cannot read in the block is damaged, and neither lost nor out of reach."""
    try:
        yield
    except _UNREADABLE as error:
        message = f"The metadata of the Iceberg table at {uri} cannot be read: {type(error).__name__}."
        raise TargetError(message, hint="A file is damaged: put it back, or drop the table from its catalog and move"
                          " its folder away; then it is read anew.") from error  # fmt: skip


def _mapped(uri: str, error: Exception) -> Wal2LakeError | None:
    library = type(error).__module__.partition(".")[0]
    if isinstance(error, _LOST_RACE):
        return SinkConflictError(f"Someone else committed to the Iceberg table at {uri} meanwhile.")
    if isinstance(error, _REFUSED):
        return AuthError("The catalog of the Iceberg tables refuses the credentials.", hint=_SETTINGS)
    if isinstance(error, iceberg.ForbiddenError):
        return RightsError("The catalog of the Iceberg tables does not allow this.", hint=_SETTINGS)
    if isinstance(error, (*_CONFIG, ImportError)):
        return ConfigError(f"The catalog of the Iceberg tables cannot be opened: {_said(error)}.", hint=_SETTINGS)
    if isinstance(error, _PASSING) or library in ("sqlalchemy", "requests", "urllib3"):
        return SinkUnavailableError(f"The catalog of the Iceberg tables does not answer now: {_said(error)}.")
    if isinstance(error, OSError):
        return failure(uri, error)
    if library == "pyiceberg":
        return SinkError(f"The Iceberg table at {uri} cannot be used: {_said(error)}.")
    return None


_SETTINGS: Final = "Look at lake.catalog and lake.catalog_properties, and at pyiceberg's own configuration."


def _said(error: Exception) -> str:
    """One line; of SQLAlchemy's, what the database says, without statements, parameters and URLs."""
    own = type(error).__name__ if type(error).__module__.startswith("sqlalchemy") else error
    words = " ".join(str(getattr(error, "orig", None) or own).split()).rstrip(".") or type(error).__name__
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]} …"
