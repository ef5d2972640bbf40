#!/bin/bash
# Runs the C++ tests and then the Python tests of the tree that cmake/setup.sh prepared; fails where either fails.
set -uo pipefail
cd "$(dirname "$0")/.."
# A suite that hangs in spite of each test's own limit is ended.
SUITE_LIMIT=20m

failed=()
run_suite() {
  local name=$1 start=$SECONDS
  shift
  printf '==> %s\n' "$name"
  timeout --kill-after=10 "$SUITE_LIMIT" "$@" || failed+=("$name")
  printf '==> %s took %d s\n' "$name" $((SECONDS - start))
}

ctest=/usr/bin/ctest
[ -x "$ctest" ] || ctest=ctest
run_suite "C++ tests" "$ctest" --test-dir build/release -j "$(nproc)" --output-on-failure --no-tests=error
run_suite "Python tests" .venv/bin/python -m pytest tests/python -q -m "not nightly" --durations=5

if [ ${#failed[@]} -gt 0 ]; then
  printf 'make test: FAILED after %d s: %s; the failures are listed above\n' $SECONDS "${failed[*]}"
  exit 1
fi
printf 'make test: everything passed in %d s\n' $SECONDS
