# Installs OpenCode $VERSION, a native program, into $DIR.
set -eu
: "${DIR:?}"
if [ -f "$DIR/.installed" ] && [ "$(cat "$DIR/.installed")" = "$VERSION" ]; then exit 0; fi
for need in npm node; do
	command -v $need >/dev/null 2>&1 || {
		echo "OpenCode cannot be installed: $need is missing. Choose an image with Node.js and npm, such as node:22, or install them in the environment's setup." >&2
		exit 1
	}
done
case "$(uname -m)" in
x86_64)
	arch=x64
	grep -qw avx2 /proc/cpuinfo || arch=x64-baseline
	;;
aarch64) arch=arm64 ;;
*)
	echo "OpenCode cannot be installed: there is no program for the processor $(uname -m). Use a machine with x86-64 or arm64." >&2
	exit 1
	;;
esac
mkdir -p "$(dirname "$DIR")"
half="$DIR.$$"
trap 'rm -rf "$half"' EXIT
rm -rf "$half" && mkdir -p "$half"
printf '{"private":true,"dependencies":{"opencode-native":"npm:%s"}}\n' "opencode-linux-$arch@$VERSION" >"$half/package.json"
(cd "$half" && npm install --no-audit --no-fund --ignore-scripts --loglevel=error >npm.log 2>&1) || {
	tail -n 5 "$half/npm.log" >&2
	echo "OpenCode cannot be installed: npm install failed. The sandbox must reach registry.npmjs.org: arbe env allow ENV registry.npmjs.org" >&2
	exit 1
}
rm -f "$half/npm.log"
echo "$VERSION" >"$half/.installed"
rm -rf "$DIR"
mv "$half" "$DIR"
