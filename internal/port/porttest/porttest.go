// Package porttest has a program that serves HTTP in a sandbox, for tests of the requests that reach it.
package porttest

import (
	_ "embed"
	"fmt"
)

// site says what it was asked, with the headers. /hostile sets what attacks whoever passes its answers on, and /hints does so in
// answers before the last one. /redirect leads to itself, /events is a stream of events and /socket a WebSocket that returns what it
// gets. /page… is the file page.html of its directory.
//
//go:embed site.py
var site string

// Start returns a script that starts the program in the background, and prints "listens" once it does.
func Start(port int) string {
	return fmt.Sprintf("cat > site.py <<'END'\n%s\nEND\nsetsid python3 site.py %d >/dev/null 2>site.log </dev/null &\n"+
		"for i in $(seq 100); do python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", %d))' 2>/dev/null && echo listens && exit; sleep 0.1; done; cat site.log", site, port, port)
}
