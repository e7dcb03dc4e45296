# Starts Gemini CLI ($2) so that it runs commands in the bash of the directory in $1.
PATH="$1:$PATH"
export PATH
shift
# To load a session, Gemini CLI first begins a file, named after the session and the minute. In the minute in which the
# session was begun, it would overwrite the session.
for file in "$GEMINI_CLI_HOME"/.gemini/tmp/*/chats/session-[0-9]*; do
	[ ! -f "$file" ] || mv "$file" "${file%/*}/session-kept-${file##*/session-}"
done
exec node "$@"
