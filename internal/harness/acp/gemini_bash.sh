#!/bin/sh
# The shell in which Gemini CLI runs commands. They see the sandbox's environment, but neither the model's key nor the
# location of Gemini CLI's configuration.
PATH="${PATH#*:}"
unset GEMINI_API_KEY GOOGLE_GEMINI_BASE_URL GEMINI_CLI_HOME GEMINI_CLI_SYSTEM_SETTINGS_PATH GEMINI_CLI_SYSTEM_DEFAULTS_PATH \
	GEMINI_CLI_TRUST_WORKSPACE GEMINI_CLI_NO_RELAUNCH
if command -v bash >/dev/null 2>&1; then exec bash "$@"; fi
exec sh "$@"
