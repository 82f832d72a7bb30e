#!/bin/sh
# Chromium for the tests that open reports in a browser. Without it those tests are skipped, and this says so.
for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null 2>&1 && exit 0
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing chromium for the browser tests" >&2
    apt-get update -qq >/dev/null 2>&1
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1 && exit 0
fi
echo "note: there is no Chromium here and it could not be installed; the browser tests will be skipped" >&2
