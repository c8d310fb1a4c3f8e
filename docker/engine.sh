#!/usr/bin/env bash
# A Docker engine for the tests, also on a machine that has none.
#
#   docker/engine.sh up     use the engine that answers; else install Docker (Debian) and start a private engine (root)
#   docker/engine.sh env    print what makes clients use the private engine:  eval "$(docker/engine.sh env)"
#   docker/engine.sh down   stop the private engine if this checkout started it; any other engine is left alone
#
# Images and containers of the private engine are kept in .docker-engine of the checkout that started it. Sockets and
# pid files are in a fixed short directory, because the path of a Unix socket may have 107 bytes, and because two
# private engines on one machine would fight over one bridge: a second checkout uses the engine of the first.
# LVQ_DOCKER_RUN=DIR chooses another directory, LVQ_DOCKERD_OPTS adds options for dockerd.
set -euo pipefail
cd "$(dirname "$0")/.."
. docker/common.sh

DATA=$PWD/.docker-engine
LOG=$DATA/dockerd.log
RUN=${LVQ_DOCKER_RUN:-/run/lvq-docker}
PIDFILE=$RUN/dockerd.pid
SOCKET=unix://$RUN/docker.sock
START_LIMIT=60
STOP_LIMIT=30

version_of() { # version_of [HOST]: the version of the engine that answers there, or at the client's default place
  local version # a client without an engine prints an empty line
  version=$(limit 10 docker ${1:+-H "$1"} version --format '{{.Server.Version}}' 2>/dev/null) && echo "$version"
}

private_pid() { # prints the pid of the private engine; a zombie or a reused pid does not count: its cmdline tells
  local pid
  pid=$(cat "$PIDFILE" 2>/dev/null) && [ -n "$pid" ] && grep -qzF -- "$PIDFILE" "/proc/$pid/cmdline" 2>/dev/null && echo "$pid"
}

wait_gone() { # wait_gone PID SECONDS; a zombie, whose command line is empty, is gone
  local end=$((SECONDS + $2))
  while grep -q . "/proc/$1/cmdline" 2>/dev/null; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.1
  done
}

engine_failed() {
  grep -vE 'level=(info|debug)' "$LOG" 2>/dev/null | tail -n 15 >&2 || true
  die "$1 (whole log: $LOG)"
}

# A dockerd that was killed leaves its containerd, the shims with their containers, mounts, and stale pid files, on which
# the next dockerd waits and gives up. The processes carry the run directory on their command line.
sweep_remains() {
  local process pid data mount_point
  for process in containerd-shim containerd; do
    for pid in $(pgrep -f -- "^[^ ]*$process.*$RUN/exec" || true); do
      [ "$process" = containerd ] || pkill -KILL -P "$pid" || true
      kill -KILL "$pid" 2>/dev/null || true
      wait_gone "$pid" 5 || true
    done
  done
  data=$(cat "$RUN/data-root" 2>/dev/null || echo "$DATA")
  while read -r _ mount_point _; do
    case $mount_point in "$RUN"/* | "$data"/*) umount -l "$mount_point" || true ;; esac
  done </proc/self/mounts
  rm -rf "$RUN"
}

# A session of its own: Ctrl-C on the tests must not stop the engine. No inherited descriptors: a caller's pipe or lock must not
# live as long as the engine does.
launch() {
  mkdir -p "$RUN" "$DATA"
  chmod 711 "$RUN"
  echo "$DATA" >"$RUN/data-root"
  (
    for fd in /proc/self/fd/*; do
      fd=${fd##*/}
      [ "$fd" -le 2 ] || eval "exec $fd>&-"
    done
    # shellcheck disable=SC2086  # LVQ_DOCKERD_OPTS holds several words
    exec setsid dockerd -H "$SOCKET" --data-root "$DATA/data" --exec-root "$RUN/exec" --pidfile "$PIDFILE" \
      --ip 127.0.0.1 --log-level warn ${LVQ_DOCKERD_OPTS-}
  ) >"$LOG" 2>&1 </dev/null &
}

start_private() {
  [ ${#RUN} -lt 60 ] || die "LVQ_DOCKER_RUN is too long for sockets below it: $RUN"
  local pid end=$((SECONDS + START_LIMIT))
  # One that is there and does not answer is slow, not dead.
  pid=$(private_pid) || {
    sweep_remains
    launch
    pid=$!
  }
  until version_of "$SOCKET" >/dev/null; do
    kill -0 "$pid" 2>/dev/null || engine_failed "dockerd ended while starting"
    [ $SECONDS -lt $end ] || { kill "$pid"; engine_failed "dockerd did not answer within $START_LIMIT s"; }
    sleep 0.2
  done
}

up() {
  local version
  if version=$(version_of); then
    say "using the running Docker engine ($version)"
  elif version=$(version_of "$SOCKET"); then
    say "the private Docker engine is up ($version)"
  else
    [ "$(uname -s)" = Linux ] || die "no Docker engine answers. Start Docker Desktop, or another engine."
    [ "$(id -u)" = 0 ] || die "no Docker engine answers, and only root can start one. Start Docker, or run this as root."
    mkdir -p "${RUN%/*}"
    exec 9>"$RUN.lock"
    flock -w $((START_LIMIT * 5)) 9 || die "another $0 has been at work for minutes (lock $RUN.lock)"
    if ! command -v dockerd >/dev/null || ! command -v iptables >/dev/null; then
      command -v apt-get >/dev/null || die "no Docker engine answers and there is no apt-get here. Install Docker and start it."
      apt_install docker.io iptables ca-certificates procps
      command -v docker >/dev/null || apt_install docker-cli # a package of its own since Debian 13
    fi
    # the package may have started an engine, or another process at work has while this one waited for the lock
    version_of >/dev/null || version_of "$SOCKET" >/dev/null || start_private
    flock -u 9
    say "the Docker engine is up ($(version_of || version_of "$SOCKET"))"
  fi
}

print_env() {
  version_of >/dev/null || ! version_of "$SOCKET" >/dev/null || echo "export DOCKER_HOST=$SOCKET"
}

down() {
  local pid containers
  pid=$(private_pid) || { say "no private Docker engine is running"; return; }
  [ "$(cat "$RUN/data-root")" = "$DATA" ] || { say "left running: it was started from another checkout, data in $(cat "$RUN/data-root")"; return; }
  containers=$(limit 10 docker -H "$SOCKET" ps -q || true)
  # shellcheck disable=SC2086  # one word for each container
  [ -z "$containers" ] || limit 60 docker -H "$SOCKET" rm -fv $containers >/dev/null || true
  kill "$pid"
  wait_gone "$pid" $STOP_LIMIT || { say "dockerd did not stop within $STOP_LIMIT s: killing it"; kill -KILL "$pid"; }
  sweep_remains
  say "the private Docker engine is stopped; its images stay in $DATA"
}

case ${1-} in
up) up ;;
env) print_env ;;
down) down ;;
*) die "usage: docker/engine.sh up|env|down" ;;
esac
