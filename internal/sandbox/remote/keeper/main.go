//go:build linux

// Program keeper runs in the boxes of providers, as the box's user. It launches commands, records their output and exit
// codes, and reads and writes files. A provider therefore only needs to run one short program. Package protocol defines its
// requests.
//
//	record.go   the record of a command: written by the process that stays with it, read by any other
//	tree.go     the processes that a command has started
//	program.go  finding the program of a command
//	keep.go     the process that stays with a command
//	terminal.go the terminal of a command
//	launch.go   starting that process, and asking it
//	files.go    reading and writing files
//	first.go    process 1 of a box
//	disk.go     reading and writing small files for the others, and the reserve for a full disk
//	dial.go     passing a connection to a port of the box on
//	secrets.go  the files of secrets
//	door.go     passing connections of the box's programs to the server
package main

import (
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// mostRequest limits a request, in bytes.
const mostRequest = 64 << 20

func main() {
	if len(os.Args) == 2 && os.Args[1] == protocol.First {
		first()
	}
	if len(os.Args) == 2 && os.Args[1] == protocol.Door {
		os.Exit(openDoor())
	}
	if len(os.Args) == 3 && os.Args[1] == guardArgument {
		guard(os.Args[2])
		return
	}
	if len(os.Args) == 3 && os.Args[1] == protocol.Dial {
		os.Exit(passOn(os.Args[2]))
	}
	if len(os.Args) == 2 && os.Args[1] == keepArgument {
		// If it was started with these signals ignored, as nohup does, commands would inherit that. A signal that is handled
		// here has its default effect in them.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT)
		keep()
		return
	}
	text, err := io.ReadAll(io.LimitReader(os.Stdin, mostRequest))
	reply := protocol.Reply{Reason: protocol.BadRequest}
	if err == nil {
		var request protocol.Request
		if request, err = protocol.DecodeRequest(text); err == nil {
			reply = answer(request)
		}
	}
	if err != nil {
		reply.Detail = err.Error()
	}
	line, err := protocol.EncodeReply(reply)
	if err == nil {
		_, err = os.Stdout.Write(line)
	}
	if err != nil {
		os.Exit(1)
	}
}

// answer answers one request.
func answer(r protocol.Request) protocol.Reply {
	for _, id := range r.Forgotten {
		_ = forget(id) // a record that is left does no harm
	}
	r.Forgotten = nil
	if r.DataIn != "" {
		name := inboxName(r.DataIn)
		data, err := os.ReadFile(name)
		if err != nil {
			return failed(err)
		}
		defer os.Remove(name)
		r.Data = data
	}
	switch r.Op {
	case protocol.Launch:
		reply := launch(r)
		if reply.Reason == "" && r.Wait > 0 {
			return follow(r)
		}
		return reply
	case protocol.Follow:
		if r.Release {
			_ = ask(protocol.Request{Op: protocol.Release, ID: r.ID, Position: r.Position}) // the next Follow repeats it
		}
		return follow(r)
	case protocol.Input, protocol.Release, protocol.Extend, protocol.Interrupt, protocol.HangUp, protocol.End:
		return ask(r)
	case protocol.Resize:
		return askTerminal(r)
	case protocol.Forget:
		return forget(r.ID)
	case protocol.Place:
		return place(r)
	case protocol.Drop:
		drop(r)
		return protocol.Reply{}
	case protocol.Fetch:
		return fetch(r)
	case protocol.Secrets:
		return placeSecrets(r)
	}
	return protocol.Reply{Reason: protocol.BadRequest, Detail: string(r.Op)}
}
