"""`qx` starts this for its Python verbs. A verb is a module of this package with `main(arguments) -> exit status`."""

import importlib
import pkgutil
import sys

import quincunx.cli

_WRONG_USAGE = 2


def verbs() -> list[str]:
    """The verbs that this installation has."""
    return sorted(name for _, name, _ in pkgutil.iter_modules(quincunx.cli.__path__) if not name.startswith("_"))


def main(arguments: list[str]) -> int:
    """Runs the verb that `arguments` start with and returns its exit status."""
    if not arguments or arguments[0] not in verbs():
        given = f"unknown verb '{arguments[0]}'" if arguments else "no verb given"
        print(f"qx: {given}, expected one of: {' '.join(verbs())}", file=sys.stderr)
        return _WRONG_USAGE
    return importlib.import_module(f"quincunx.cli.{arguments[0]}").main(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
