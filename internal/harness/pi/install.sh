# Installs pi $VERSION and Node.js 22, which it needs, into $DIR. $PACKAGE and $LOCK are npm's files: they name the version and
# the checksum of each package, so that every installation is the same.
set -eu
: "${DIR:?}"
if [ -f "$DIR/.installed" ] && [ "$(cat "$DIR/.installed")" = "$VERSION" ]; then exit 0; fi
for need in npm node; do
	command -v $need >/dev/null 2>&1 || {
		echo "pi cannot be installed: $need is missing. Choose an image with Node.js and npm, such as node:22, or install them in the environment's setup." >&2
		exit 1
	}
done
mkdir -p "$(dirname "$DIR")"
half="$DIR.$$"
trap 'rm -rf "$half"' EXIT
rm -rf "$half" && mkdir -p "$half"
printf '%s' "$PACKAGE" >"$half/package.json"
printf '%s' "$LOCK" >"$half/package-lock.json"
(cd "$half" && npm ci --no-audit --no-fund --loglevel=error --ignore-scripts=false >npm.log 2>&1) || {
	tail -n 5 "$half/npm.log" >&2
	echo "pi cannot be installed: npm failed. The sandbox must reach registry.npmjs.org: arbe env allow ENV registry.npmjs.org" >&2
	exit 1
}
"$half/node_modules/.bin/node" -e 'process.exit(+process.versions.node.split(".")[0] < 22 ? 1 : 0)' 2>/dev/null || {
	echo "pi cannot be installed: the node program of npm's package node does not run here. It needs glibc on x86-64 or arm64; choose another image." >&2
	exit 1
}
rm -f "$half/npm.log"
echo "$VERSION" >"$half/.installed"
rm -rf "$DIR"
mv "$half" "$DIR"
