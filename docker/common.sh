# Sourced by the scripts beside it: words for people, time limits, packages.
# shellcheck shell=bash

say() { echo "${0##*/}: $*" >&2; }
die() { say "$*"; exit 1; }

# limit SECONDS COMMAND...: with a time limit where the machine has timeout(1); macOS has none.
limit() {
  if command -v timeout >/dev/null; then timeout "$@"; else "${@:2}"; fi
}

# as_root COMMAND...: as root, or through sudo where it asks for no password.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

can_be_root() { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }

# apt_install PACKAGE...: installs what is missing. Mirrors and locks fail now and then, so three attempts;
# nothing is shown unless the last one fails. Services must not start by themselves: RUNLEVEL=1 tells Debian so.
apt_install() {
  local missing=() package attempt log
  for package; do dpkg-query -Wf '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  can_be_root || die "these packages are missing: ${missing[*]}. Install them, or run this as root."
  log=$(mktemp)
  local apt=(as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
    apt-get -q -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3)
  say "installing ${missing[*]}"
  for attempt in 1 2 3; do
    if "${apt[@]}" update >"$log" 2>&1 &&
      "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
      rm -f "$log"
      return 0
    fi
    [ "$attempt" = 3 ] || sleep $((attempt * 5))
  done </dev/null
  tail -n 20 "$log" >&2
  rm -f "$log"
  die "apt-get could not install ${missing[*]} (its last lines are above)"
}

# require_engine: the client talks to the engine that answers, be it the private one.
require_engine() {
  command -v docker >/dev/null || die "there is no docker command here; docker/engine.sh up installs one, and an engine"
  eval "$(docker/engine.sh env)"
  limit 10 docker version >/dev/null 2>&1 || die "no Docker engine answers; docker/engine.sh up starts one"
}

# build_image NAME ARGUMENT...: docker build, quiet unless it fails; what had the name before goes.
build_image() {
  local log before
  log=$(mktemp)
  before=$(docker image inspect -f '{{.Id}}' "$1" 2>/dev/null || true)
  if ! docker build --force-rm --tag "$@" >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    rm -f "$log"
    die "docker build of $1 failed (its last lines are above)"
  fi
  rm -f "$log"
  [ -z "$before" ] || [ "$before" = "$(docker image inspect -f '{{.Id}}' "$1")" ] || docker rmi "$before" >/dev/null 2>&1 || true
  say "built $1 ($(($(docker image inspect -f '{{.Size}}' "$1") / 1000000)) MB)"
}

# have_image NAME: it is here, or has just been pulled.
have_image() {
  docker image inspect "$1" >/dev/null 2>&1 || limit 900 docker pull --quiet "$1" >/dev/null 2>&1
}
