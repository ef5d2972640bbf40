#!/bin/bash
# The slow checks: tests/nightly.sh [PART...], without a part all of them. Each part builds in a folder of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
ALL=(g++ asan tsan tidy fuzz coverage aarch64 vector_math faults train)
FUZZ_SECONDS=${FUZZ_SECONDS:-60}
JOBS=${JOBS:-$(nproc)}
CMAKE=/usr/bin/cmake
[ -x "$CMAKE" ] || CMAKE=cmake
CTEST=${CMAKE%cmake}ctest

configure() { "$CMAKE" --preset "$1" >/dev/null; }
build() { configure "$1" && "$CMAKE" --build "build/$1" -j "$JOBS"; }
# Sanitized programs run several times slower, so each test gets more than its own limit.
run_ctest() { "$CTEST" --test-dir "build/$1" --output-on-failure --no-tests=error --timeout 600 -LE lint "${@:2}"; }

run_tidy() {
  configure tidy
  run-clang-tidy-22 -clang-tidy-binary clang-tidy-22 -p build/tidy -quiet -j "$JOBS" "$PWD/quincunx/(?!.*\.inc)"
}

run_fuzzers() {
  build fuzz
  local program count=0
  for program in build/fuzz/fuzz/*_fuzz; do
    [ -x "$program" ] || continue
    count=$((count + 1))
    mkdir -p "build/fuzz/corpus/$(basename "$program")"
    "$program" -max_total_time="$FUZZ_SECONDS" -print_final_stats=1 "build/fuzz/corpus/$(basename "$program")"
  done
  [ "$count" -gt 0 ] || { echo "error: there is no *_fuzz.cpp below tests/" >&2; return 1; }
}

run_coverage() {
  build coverage
  rm -rf build/coverage/profiles
  LLVM_PROFILE_FILE=$PWD/build/coverage/profiles/%p.profraw run_ctest coverage
  llvm-profdata-22 merge -sparse build/coverage/profiles/*.profraw -o build/coverage/all.profdata
  local library=build/coverage/lib/libquincunx_runtime.so
  llvm-cov-22 show "$library" -instr-profile build/coverage/all.profdata -format html -output-dir build/coverage/html
  llvm-cov-22 report "$library" -instr-profile build/coverage/all.profdata
  echo "lines shown in build/coverage/html/index.html"
}

# The kernels for another architecture. Tests of base and parallel start and fork processes, which qemu-user cannot.
run_aarch64() {
  cmake/aarch64-sysroot.sh
  build aarch64
  run_ctest aarch64 -L '^(tensor|kernels)$'
}

# Every float there is.
run_vector_math() {
  configure release
  "$CMAKE" --build build/release -j "$JOBS" --target kernels_elementwise_vector_math_test
  QX_EXHAUSTIVE_TESTS=1 build/release/bin/kernels_elementwise_vector_math_test
}

# Every seeded fault of a job's ranks.
run_faults() {
  configure release
  "$CMAKE" --build build/release -j "$JOBS" --target collectives_fault_cases_test
  QX_FAULT_CASES=0-199 build/release/bin/collectives_fault_cases_test
}

run_part() {
  case $1 in
    g++) build gcc && run_ctest gcc ;;
    asan) build asan && run_ctest asan ;;
    tsan) build tsan && run_ctest tsan ;;
    tidy) run_tidy ;;
    fuzz) run_fuzzers ;;
    coverage) run_coverage ;;
    aarch64) run_aarch64 ;;
    vector_math) run_vector_math ;;
    faults) run_faults ;;
    train) cmake/setup.sh all && .venv/bin/python -m pytest tests/python -q -m nightly ;;
  esac
}

[ $# -gt 0 ] || set -- "${ALL[@]}"
for part in "$@"; do
  [[ " ${ALL[*]} " == *" $part "* ]] || { echo "error: unknown part '$part', expected one of ${ALL[*]}" >&2; exit 2; }
done
cmake/setup.sh system nightly python
failed=()
for part in "$@"; do
  echo "==> nightly: $part"
  # A subshell of its own keeps `set -e` alive inside the part.
  set +e
  (set -e; run_part "$part")
  [ $? -eq 0 ] || failed+=("$part")
  set -e
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "nightly: FAILED: ${failed[*]}"
  exit 1
fi
echo "nightly: $* passed"
