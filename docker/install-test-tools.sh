#!/usr/bin/env bash
# Installs the programs that some tests drive, with Debian's package manager. CI calls it, and nobody else: a test whose
# program is missing is left out, and says so.
set -euo pipefail
cd "$(dirname "$0")/.."
. docker/common.sh

PACKAGES=(
  chromium   # shows the live board
  prometheus # evaluates the alert rules and the queries of the dashboard
  zsh fish   # read the script that completes commands
)

command -v apt-get >/dev/null || die "there is no apt-get here. Install these yourself: ${PACKAGES[*]}"
apt_install "${PACKAGES[@]}"
