# Runs a program, unless the directory in $1 or one above it has plugins for OpenCode, which OpenCode would run.
dir=$1
shift
refuse() {
	echo "the repository has code that OpenCode would run by itself: $1. Remove it, or give the task to a coding agent that runs nothing of a repository." >&2
	exit 1
}
while :; do
	for name in "$dir"/.opencode/plugin/* "$dir"/.opencode/plugin/.*.[jt]s "$dir"/.opencode/plugins/* "$dir"/.opencode/plugins/.*.[jt]s; do
		case "$name" in *.js | *.ts) if [ -e "$name" ] || [ -L "$name" ]; then refuse "$name"; fi ;; esac
	done
	for name in "$dir"/opencode.json "$dir"/opencode.jsonc "$dir"/.opencode/opencode.json "$dir"/.opencode/opencode.jsonc; do
		[ -e "$name" ] || continue
		# An escaped character could be part of the word.
		LC_ALL=C grep -q -e plugin -e '\\u' "$name"
		[ $? -eq 1 ] || refuse "the plugins in $name"
	done
	[ "$dir" != / ] && [ "$dir" != . ] || break
	dir=$(dirname "$dir")
done
exec "$@"
