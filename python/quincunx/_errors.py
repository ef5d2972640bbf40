"""Errors of the C++ core: operators raise RuntimeError("CODE: message"), callers see the exception of that code."""

import contextlib
from collections.abc import Iterator

_EXCEPTIONS = {
    "INVALID_ARGUMENT": ValueError,
    "TYPE_ERROR": TypeError,
    "UNIMPLEMENTED": NotImplementedError,
    "DEADLINE_EXCEEDED": TimeoutError,
}


@contextlib.contextmanager
def core_errors() -> Iterator[None]:
    """Raises ValueError, TypeError, NotImplementedError or TimeoutError instead of the RuntimeError of an operator."""
    try:
        yield
    except RuntimeError as error:
        code, separator, message = str(error).partition(": ")
        if separator and code in _EXCEPTIONS:
            raise _EXCEPTIONS[code](message) from None
        raise
