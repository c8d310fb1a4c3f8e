#!/usr/bin/env bash
# Makes sure that a Java 17 or newer is there (JAVA_HOME or PATH): silent if so, else installed by the package manager.
set -euo pipefail
cd "$(dirname "$0")/.."
. docker/common.sh

WANTED=17

java_version() { # java_version PROGRAM: 17 for "17.0.15", 8 for "1.8.0_302"; nothing where it does not run
  "$1" -version 2>&1 | sed -nE 's/.* version "(1\.)?([0-9]+).*/\2/p' | head -n 1
}

has_java() {
  local program version
  for program in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} java; do
    version=$(java_version "$program") || continue
    [ "${version:-0}" -lt $WANTED ] || return 0
  done
  return 1
}

has_java && exit 0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
advice="Install one (any JDK or JRE from $WANTED on) and put it on PATH or set JAVA_HOME."
if command -v brew >/dev/null; then
  say "installing Java with Homebrew"
  brew install --quiet openjdk >"$log" 2>&1 </dev/null || { tail -n 20 "$log" >&2; die "Homebrew could not install Java. $advice"; }
  PATH=$(brew --prefix)/opt/openjdk/bin:$PATH
  has_java || die "Homebrew installed Java, but it does not run. $advice"
  die "Java is installed; Homebrew keeps it off PATH. Run: export JAVA_HOME=$(brew --prefix)/opt/openjdk"
fi
can_be_root || die "Java $WANTED or newer is missing, and only root could install it. $advice"
if command -v apt-get >/dev/null; then
  for package in openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless; do
    apt-cache show "$package" >/dev/null 2>&1 && break
  done
  apt_install "$package"
elif command -v dnf >/dev/null; then
  say "installing Java with dnf"
  { as_root dnf -qy install java-21-openjdk-headless || as_root dnf -qy install java-latest-openjdk-headless ||
    as_root dnf -qy install java-17-openjdk-headless; } >"$log" 2>&1 </dev/null || { tail -n 20 "$log" >&2; die "dnf could not install Java. $advice"; }
elif command -v apk >/dev/null; then
  say "installing Java with apk"
  as_root apk add --quiet openjdk21-jre-headless >"$log" 2>&1 </dev/null || { tail -n 20 "$log" >&2; die "apk could not install Java. $advice"; }
else
  die "Java $WANTED or newer is missing, and this script knows no package manager on this machine. $advice"
fi
has_java || die "Java was installed, but the one that runs is still older than $WANTED. $advice"
