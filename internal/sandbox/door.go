package sandbox

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// Door returns the origin of the server's doors for programs in the sandbox, such as http://arbe.internal. The doors
// serve streams and models, and need a thread token of the sandbox's house. It is empty if no door can be reached.
func (p Handle) Door() string {
	if driver, ok := p.driver.(Doored); ok {
		return driver.Door()
	}
	return p.door
}

// doorOf returns the origin of the server's doors for a box whose driver is not [Doored]. public is the server's public
// address.
func doorOf(ctx context.Context, driver Driver, ref, public string) (string, error) {
	if relaying, ok := driver.(Relaying); ok && ref != "" {
		origin, err := relaying.Relay(ctx, ref)
		if fault.CodeOf(err) == fault.NotFound { // the caller finds out by using the box
			err = nil
		}
		if err != nil || origin != "" {
			return origin, err
		}
	}
	return public, nil
}

// doorTime limits a check of the door.
const doorTime = 20 * time.Second

// checkDoor requests a stream from the door $1 without a credential, with whichever program exists, and prints the
// answer. For bash, the door's host is $2 and its port $3.
const checkDoor = `
url=$1/api/stream/door
if command -v curl >/dev/null; then curl -sS -m 15 -o /dev/null -w 'status %{http_code}' "$url"
elif command -v wget >/dev/null; then wget -T 15 -O /dev/null "$url"
elif command -v python3 >/dev/null; then python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=15)' "$url"
elif command -v node >/dev/null; then node -e 'fetch(process.argv[1]).then(r => console.log("status", r.status), e => console.log(e.cause || e))' "$url"
elif command -v bash >/dev/null; then bash -c 'exec 3<>"/dev/tcp/$1/$2" && printf "GET /api/stream/door HTTP/1.0\r\nHost: %s\r\n\r\n" "$1" >&3 && head -n 1 <&3' - "$2" "$3"
else echo no program; fi 2>&1`

// unauthorized matches how programs report that the door asked for a credential, as it does if there is none.
var unauthorized = lazyregexp.New(`\b401\b`)

// CheckDoor checks from inside the sandbox that [Handle.Door] leads to this server. The error is a
// [fault.Unavailable] that quotes a program in the sandbox, or a [fault.Precondition] if there is no door or no
// program that can request it.
func (p Handle) CheckDoor(ctx context.Context) error {
	origin, err := url.Parse(p.Door())
	if err != nil || origin.Host == "" {
		return fault.New(fault.Precondition, "programs in this sandbox cannot reach the server",
			"a local sandbox needs a kernel with nf_tables and the runtime runc; for other drivers, set public_url to where the internet reaches the server")
	}
	port := origin.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[origin.Scheme]
	}
	var said tail
	_, err = p.Exec(ctx, Command{
		Argv: []string{"/bin/sh", "-c", checkDoor, "-", origin.String(), origin.Hostname(), port}, Dir: "/", Stdout: &said, Merged: true, Timeout: doorTime,
	})
	switch text := strings.TrimSpace(said.String()); {
	case err != nil:
		return err
	case unauthorized.MatchString(text):
		return nil
	case strings.HasSuffix(text, "no program"):
		return fault.New(fault.Precondition, "nothing in this sandbox can ask the server", "install curl or wget in its image")
	default:
		return fault.Newf(fault.Unavailable, "check that "+origin.String()+" leads to the server from where the sandbox is", "a program in this sandbox does not reach the server: %s", text[strings.LastIndexByte(text, '\n')+1:])
	}
}
