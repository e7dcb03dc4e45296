# Installs Gemini CLI $VERSION into $DIR.
set -eu
: "${DIR:?}"
if [ -f "$DIR/.installed" ] && [ "$(cat "$DIR/.installed")" = "$VERSION" ]; then exit 0; fi
for need in npm node; do
	command -v $need >/dev/null 2>&1 || {
		echo "Gemini CLI cannot be installed: $need is missing. Choose an image with Node.js and npm, such as node:22, or install them in the environment's setup." >&2
		exit 1
	}
done
node -e 'process.exit(+process.versions.node.split(".")[0] < 20 ? 1 : 0)' || {
	echo "Gemini CLI cannot be installed: it needs Node.js 20 or newer. Choose another image, such as node:22." >&2
	exit 1
}
mkdir -p "$(dirname "$DIR")"
half="$DIR.$$"
trap 'rm -rf "$half"' EXIT
rm -rf "$half" && mkdir -p "$half"
printf '{"private":true,"dependencies":{"@google/gemini-cli":"%s"}}\n' "$VERSION" >"$half/package.json"
(cd "$half" && npm install --omit=optional --no-audit --no-fund --ignore-scripts --loglevel=error >npm.log 2>&1) || {
	tail -n 5 "$half/npm.log" >&2
	echo "Gemini CLI cannot be installed: npm install failed. The sandbox must reach registry.npmjs.org: arbe env allow ENV registry.npmjs.org" >&2
	exit 1
}
rm -f "$half/npm.log"
echo "$VERSION" >"$half/.installed"
rm -rf "$DIR"
mv "$half" "$DIR"
