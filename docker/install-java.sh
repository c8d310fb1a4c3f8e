#!/usr/bin/env bash
# Makes sure that a Java 17 or newer is there (JAVA_HOME or PATH): silent if so, else installed by the package manager.
# With the argument jdk, it can compile as well; where only root could install such a one, it says what is left out.
set -euo pipefail
cd "$(dirname "$0")/.."
. docker/common.sh

WANTED=17
KIND=${1:-java}

java_version() { # java_version PROGRAM: 17 for "17.0.15", 8 for "1.8.0_302"; nothing where it does not run
  "$1" -version 2>&1 | sed -nE 's/.* version "(1\.)?([0-9]+).*/\2/p' | head -n 1
}

find_java() { # find_java: the first program that is new enough
  local program version
  for program in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} java; do
    version=$(java_version "$program") || continue
    [ "${version:-0}" -lt $WANTED ] || { echo "$program"; return 0; }
  done
  return 1
}

has_java() {
  local program
  program=$(find_java) && { [ "$KIND" != jdk ] || "$program" --describe-module jdk.compiler >/dev/null 2>&1; }
}

leave_out() { # leave_out: where there is a Java, only the compiler is missing
  local program
  [ "$KIND" = jdk ] && program=$(find_java) || return 0
  say "$program belongs to no JDK, so tests that compile Java are left out"
  exit 0
}

has_java && exit 0
[ -z "${JAVA_HOME-}" ] && can_be_root || leave_out
log=$(mktemp)
trap 'rm -f "$log"' EXIT
advice="Install one (any JDK from $WANTED on) and put it on PATH or set JAVA_HOME."
if command -v brew >/dev/null; then
  say "installing Java with Homebrew"
  brew install --quiet openjdk >"$log" 2>&1 </dev/null || { tail -n 20 "$log" >&2; die "Homebrew could not install Java. $advice"; }
  PATH=$(brew --prefix)/opt/openjdk/bin:$PATH
  has_java || die "Homebrew installed Java, but it does not run. $advice"
  die "Java is installed; Homebrew keeps it off PATH. Run: export JAVA_HOME=$(brew --prefix)/opt/openjdk"
fi
can_be_root || die "Java $WANTED or newer is missing, and only root could install it. $advice"
if command -v apt-get >/dev/null; then
  there=$(java_version java || true) # a compiler of the same release: another one would not be the default
  for package in ${there:+"openjdk-$there-jdk-headless"} openjdk-17-jdk-headless openjdk-21-jdk-headless default-jdk-headless; do
    apt-cache show "$package" >/dev/null 2>&1 && break
  done
  apt_install "$package"
elif command -v dnf >/dev/null; then
  say "installing Java with dnf"
  { as_root dnf -qy install java-21-openjdk-devel || as_root dnf -qy install java-latest-openjdk-devel ||
    as_root dnf -qy install java-17-openjdk-devel; } >"$log" 2>&1 </dev/null || { tail -n 20 "$log" >&2; die "dnf could not install Java. $advice"; }
elif command -v apk >/dev/null; then
  say "installing Java with apk"
  as_root apk add --quiet openjdk21-jdk >"$log" 2>&1 </dev/null || { tail -n 20 "$log" >&2; die "apk could not install Java. $advice"; }
else
  die "Java $WANTED or newer is missing, and this script knows no package manager on this machine. $advice"
fi
has_java || leave_out
has_java || die "Java was installed, but the one that runs is still older than $WANTED, or cannot compile. $advice"
