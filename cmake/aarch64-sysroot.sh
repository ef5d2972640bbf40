#!/bin/bash
# Unpacks Debian's libraries for aarch64 into build/aarch64-sysroot: what cmake/aarch64-toolchain.cmake compiles against.
# Nothing enters the system: apt works on lists and a state of its own.
set -euo pipefail
cd "$(dirname "$0")/.."

SYSROOT=$PWD/build/aarch64-sysroot
PACKAGES=(libc6 libc6-dev libcrypt1 linux-libc-dev libgcc-s1 libgcc-12-dev libgomp1 libstdc++6 libstdc++-12-dev
  libhwy1 libhwy-dev libspdlog-dev libfmt-dev libgtest-dev libgmock-dev libdlpack-dev
  nlohmann-json3-dev)

[ "$(cat "$SYSROOT/packages" 2>/dev/null)" != "${PACKAGES[*]}" ] || exit 0
rm -rf "$SYSROOT" && mkdir -p "$SYSROOT"
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$state/packages"
touch "$state/status"
apt=(apt-get -q -o "Dir::State=$state" -o "Dir::State::status=$state/status" -o "Dir::Cache=$state/cache"
  -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=)
"${apt[@]}" update
(cd "$state/packages" && "${apt[@]}" download "${PACKAGES[@]}")
for package in "$state"/packages/*.deb; do dpkg-deb -x "$package" "$SYSROOT"; done
# Links to /lib/... would leave the sysroot.
find "$SYSROOT" -type l -lname '/*' -printf '%p\t%l\n' | while IFS=$'\t' read -r link target; do
  ln -sfn "$SYSROOT$target" "$link"
done
echo "${PACKAGES[*]}" >"$SYSROOT/packages"
