#!/usr/bin/env bash
# Makes sure that a C compiler is there: silent if so, else installed by the package manager. Qpid Proton, the client of
# other brokers, comes as source.
set -euo pipefail
cd "$(dirname "$0")/.."
. docker/common.sh

has_compiler() { "${CC:-cc}" --version >/dev/null 2>&1; }

has_compiler && exit 0
advice="Install one, such as gcc with the headers of your Python."
can_be_root || die "There is no C compiler, and only root could install it. $advice"
if command -v apt-get >/dev/null; then
  apt_install gcc libc6-dev python3-dev
elif command -v dnf >/dev/null; then
  say "installing a C compiler with dnf"
  as_root dnf -qy install gcc python3-devel </dev/null >&2 || die "dnf could not install a C compiler. $advice"
elif command -v apk >/dev/null; then
  say "installing a C compiler with apk"
  as_root apk add --quiet gcc musl-dev python3-dev </dev/null >&2 || die "apk could not install a C compiler. $advice"
else
  die "There is no C compiler, and this script knows no package manager on this machine. $advice"
fi
has_compiler || die "A C compiler was installed, but it does not run. $advice"
