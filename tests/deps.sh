#!/bin/sh
# Installs those of the named Debian packages that are missing: tests/deps.sh PACKAGE...
set -eu

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    echo "tests/deps.sh: no apt-get here; install your system's packages for: $*" >&2
    exit 1
fi

missing=
for package; do
    # One line for each architecture that the package is installed for.
    dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing="$missing $package"
done
if [ -z "$missing" ]; then
    echo "deps: nothing is missing"
    exit 0
fi

as_root=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "tests/deps.sh: must be root, or have sudo, to install:$missing" >&2
        exit 1
    fi
    as_root=sudo
fi

echo "deps: installing$missing"
install() {
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" </dev/null
}
install update
# shellcheck disable=SC2086 # one argument for each package
install install -y --no-install-recommends $missing
echo "deps: installed$missing"
