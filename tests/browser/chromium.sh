#!/bin/sh
# Find a Chromium for the browser tests; as root with apt, install Debian's.
for name in chromium chromium-browser google-chrome google-chrome-stable; do
  command -v "$name" >/dev/null 2>&1 && exit 0
done
[ -n "${CHROMIUM:-}" ] && [ -x "$CHROMIUM" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium fonts-dejavu-core >/dev/null && exit 0
fi
echo "The browser tests need Chromium. Install it (Debian, Ubuntu: apt install chromium; macOS: brew install chromium)," >&2
echo "or set CHROMIUM to the path of one, then run make test again." >&2
exit 2
