# Sourced by the build scripts: a root file system from this machine's own files, for images that have to be built
# where no image registry can be reached. Linux only; needs only Debian's busybox-static.
# shellcheck shell=bash

# rootfs_begin DIR: directories, a shell, the usual commands, and the user that the image runs as.
rootfs_begin() {
  local root=$1 applet
  [ "$(uname -s)" = Linux ] || die "this image can be built on Linux only; elsewhere pull the official one"
  command -v busybox >/dev/null || apt_install busybox-static
  umask 022 # what is made here has to be readable for the image's user
  mkdir -p "$root"/{etc,opt,proc,sys,dev,root,tmp,var/tmp,home/appuser} "$root"/usr/{bin,lib,lib64,local/bin}
  chmod 1777 "$root/tmp" "$root/var/tmp"
  for applet in bin lib lib64; do ln -s "usr/$applet" "$root/$applet"; done
  ln -s usr/bin "$root/sbin"
  cp "$(command -v bash)" "$(command -v busybox)" "$root/usr/bin/"
  for applet in $(busybox --list); do
    [ -e "$root/usr/bin/$applet" ] || ln -s busybox "$root/usr/bin/$applet"
  done
  printf '%s\n' root:x:0:0:root:/root:/bin/bash appuser:x:1000:1000::/home/appuser:/bin/bash >"$root/etc/passwd"
  printf '%s\n' root:x:0: appuser:x:1000: >"$root/etc/group"
  echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
}

# rootfs_end DIR: the shared libraries that the programs and libraries in DIR ask for, and those that every Linux system
# has: whatever is added later may need them.
rootfs_end() {
  local root=$1 library
  { # ldd prints "name => /path (address)", or "/path (address)" for the loader, and fails for scripts
    find "$root" -type f \( -name '*.so*' -o -perm -u+x \) -exec ldd {} + 2>/dev/null | grep -oE '/[^ ]+ \(' | tr -d ' (' || true
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p | grep -oE '/[^ ]*/lib(nss_dns|nss_files|gcc_s|stdc\+\+|m|dl|rt|pthread|resolv|util|z)\.so\.[0-9]+$'
  } | sort -u | while read -r library; do
    case $library in "$root"/*) continue ;; esac # a library of DIR that asks for another one
    mkdir -p "$root${library%/*}"
    cp -L "$library" "$root${library%/*}/"
  done
}
