// Package porttest has a program that serves HTTP in a sandbox, for tests of the requests that reach it.
package porttest

import (
	_ "embed"
	"fmt"
)

// site returns each request that it gets, with the headers. The responses of /hostile attack the proxy that passes them on,
// and those of /hints do so in informational responses before the final one. /redirect leads to itself, /events is a stream
// of events and /socket a WebSocket that returns what it gets. /page… is the file page.html of its directory.
//
//go:embed site.py
var site string

// Start returns a script that starts the program in the background, and prints "listens" once it does.
func Start(port int) string {
	return fmt.Sprintf("cat > site.py <<'END'\n%s\nEND\nsetsid python3 site.py %d >/dev/null 2>site.log </dev/null &\n"+
		"for i in $(seq 100); do python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", %d))' 2>/dev/null && echo listens && exit; sleep 0.1; done; cat site.log", site, port, port)
}
