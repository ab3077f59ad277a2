#!/usr/bin/env bash
# A browser without a network shows the page of a report: its tables, its plots, and nothing from elsewhere.
source "$(dirname "$0")/../lib/server.sh"
needs_coquina
needs fio unshare
CHROMIUM=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
    skip "no Chromium is installed"
unshare --net true 2>/dev/null || skip "networks cannot be taken away here"

# chromium ARGUMENT... : the browser, alone in a network of its own
chromium() {
    unshare --net timeout 60 "$CHROMIUM" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
        --user-data-dir="$SCRATCH/browser" "$@" 2>"$SCRATCH/browser.log"
}

chromium --dump-dom about:blank >/dev/null || skip "Chromium does not start here"

"$COQUINA" bench run hdd-tuning --quick --only 'random write' --rounds 3 --runtime 0.5 --warmup 0 \
    --volume-size 64M --folder "$SCRATCH" --target "file:$SCRATCH/one" --target "file:$SCRATCH/two" --out "$SCRATCH/out"
"$COQUINA" bench show "$SCRATCH/out" --html "$SCRATCH/page.html" --svg "$SCRATCH/plot.svg" >"$SCRATCH/text"
grep -q 'random write' "$SCRATCH/text" || fail "the text names no workload"

! grep -Eqi 'https?:|src=|<script|@import|url\(' "$SCRATCH/page.html" || fail "the page refers to something elsewhere"
chromium --dump-dom "file://$SCRATCH/page.html" >"$SCRATCH/dom"
for wanted in '<svg' '<table' 'scope="col"' 'In short' 'What was compared' 'Machine and settings' 'file:'; do
    grep -q -- "$wanted" "$SCRATCH/dom" || fail "the page shows no $wanted"
done
plots=$(grep -o '<svg' "$SCRATCH/dom" | wc -l)
((plots >= 8)) || fail "the page shows $plots pictures only"

# What is drawn is more than an empty page.
chromium --screenshot="$SCRATCH/page.png" --window-size=1200,2000 "file://$SCRATCH/page.html" >/dev/null
chromium --screenshot="$SCRATCH/plot.png" --window-size=940,500 "file://$SCRATCH/plot.svg" >/dev/null
for picture in page plot; do
    size=$(stat --format=%s "$SCRATCH/$picture.png")
    ((size > 20000)) || fail "$picture.png is as small as an empty page: $size bytes"
done
chromium --print-to-pdf="$SCRATCH/page.pdf" "file://$SCRATCH/page.html" >/dev/null
[[ $(head -c 4 "$SCRATCH/page.pdf") == %PDF ]] || fail "the page cannot be printed"
say "$plots pictures, and the page prints"
