# What Dunlin's shell programs share; to be sourced by bash. Sets `root`, the source tree.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
jobs=${jobs:-$(nproc)}
# Lets ccache share objects between build directories, and serve what was compiled with a precompiled header.
export CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros

heading() { printf '\n== %s\n' "$*"; }
say() { printf '   %s\n' "$*"; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# The comment at the top of the program is its help.
print_help() { sed -n '2,${/^#/!q;s/^# \{0,1\}//p}' "$0"; }

# packages_of KIND...: their names in tools/packages.txt; the kinds are required, quickstart and optional.
packages_of() {
  sed 's/#.*//' "$root/tools/packages.txt" | awk -v kinds=" $* " '
    NF == 0 { next }
    { kind = NF == 2 ? $1 : "required" }
    index(kinds, " " kind " ") { print $NF }'
}

# missing_of KIND...: those of them that aren't installed.
missing_of() {
  local package
  for package in $(packages_of "$@"); do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
  done
}

# What a package is for, from its line in the list.
purpose_of() { sed -n "s/^\([a-z]* \)\{0,1\}$1 *# */ /p" "$root/tools/packages.txt"; }

# install_packages KIND...: installs what is missing of the required packages and of these kinds, where this user may;
# otherwise says what is missing and what that disables. Fails only when something required is missing in the end.
install_packages() {
  command -v dpkg-query >/dev/null || {
    say "not a Debian system: see tools/packages.txt for what is needed"
    return
  }
  local required optional package
  required=$(missing_of required)
  optional=$(missing_of "$@")
  if [[ -n "$required$optional" && $EUID -eq 0 ]] && command -v apt-get >/dev/null; then
    say "installing" $required $optional
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update || say "apt-get update failed; trying with the lists that are here"
    # One by one where all at once fails, so that a package that doesn't exist here stops no other.
    apt-get -qq install -y --no-install-recommends $required $optional >/dev/null ||
      for package in $required $optional; do
        apt-get -qq install -y --no-install-recommends "$package" >/dev/null || say "could not install $package"
      done
    required=$(missing_of required)
    optional=$(missing_of "$@")
  fi
  for package in $optional; do say "without $package:$(purpose_of "$package")"; done
  [[ -z "$required" ]] || die "missing packages; as root: apt-get install" $required
  say "all required packages are installed"
}

# configure BUILD_DIR MESON_OPTION...: sets it up, or updates its options.
configure() {
  local build=$1
  shift
  local again=()
  [[ -f "$build/build.ninja" ]] && again=(--reconfigure)
  meson setup "${again[@]}" "$build" "$root" "$@" >"$build.log" 2>&1 || {
    tail -n 20 "$build.log" >&2
    return 1
  }
}

# compile BUILD_DIR [TARGET...]: says how far it is.
compile() {
  local build=$1
  shift
  python3 "$root/tools/lib/check/compile.py" "$build" "$jobs" "$@"
}
