#!/usr/bin/env bash
# Keeps documents short, and history out of them. That generated pages are current is checked by `make test`.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
complain() {
    echo "docs-check: $1" >&2
    failed=1
}

# at_most FILE LINES BYTES
at_most() {
    local lines bytes
    lines=$(wc -l <"$1")
    bytes=$(wc -c <"$1")
    [ "$lines" -le "$2" ] || complain "$1 has $lines lines, at most $2"
    [ "$bytes" -le "$3" ] || complain "$1 has $bytes bytes, at most $3"
}

at_most README.md 220 14336
at_most ARCHITECTURE.md 420 30720
decisions=(docs/decisions/[0-9][0-9][0-9][0-9]-*.md)
[ "${#decisions[@]}" -le 20 ] || complain "docs/decisions has ${#decisions[@]} files, at most 20"
for file in "${decisions[@]}"; do
    at_most "$file" 60 8192
done

# Links between documents lead somewhere.
while IFS=: read -r file link; do
    target=${link%%#*}
    [ -z "$target" ] || [ -e "$(dirname "$file")/$target" ] || complain "$file: no $link"
done < <(grep -oHE '\]\([^)]*\)' README.md ARCHITECTURE.md CHANGELOG.md docs/*.md docs/decisions/*.md |
    sed -E 's/\]\(([^)]*)\)/\1/' | grep -vE ':(https?|mailto):')

# Source files that documents name are there; `shard/core.rs` is short for engine/src/shard/core.rs.
while IFS=: read -r file path; do
    found=0
    for root in . engine engine/src engine/wal/src engine/wire/src coordinator/src tests/tests/system; do
        [ ! -e "$root/$path" ] || found=1
    done
    [ "$found" = 1 ] || complain "$file names $path, which is not there"
done < <(grep -oHE '`[a-z0-9_/]+\.rs`|`(engine|coordinator|bench|tests|docs|scripts)/[a-z0-9_/-]+`' \
    README.md ARCHITECTURE.md docs/*.md docs/decisions/*.md | tr -d '`' | sort -u)

# Every decision is found from ARCHITECTURE.md.
for file in "${decisions[@]}"; do
    grep -qF "($file)" ARCHITECTURE.md || complain "ARCHITECTURE.md does not link $file"
done

# A build that is named by when it was made cannot be checked out: name a commit, or leave it out.
phrase="the build"" before"
if git grep -nI "$phrase" -- . >&2; then
    complain "which build? name a commit"
fi
exit "$failed"
