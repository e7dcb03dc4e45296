// Command arbe is arbe's only program: the server (arbe up, arbe serve), and the command line that talks to a server.
//
// Each verb is one file with one constructor, and one line in the table of verbs (verbs.go), from which root.go builds the
// command line. A verb that talks to a server speaks Connect through package proto/arbe and knows nothing else about it. All
// verbs get the same [app] (app.go): the streams, the output that the person wants, and the way to the server (target.go).
// One place turns the error of a verb into a message on stderr and an exit code (failure.go).
//
// The rule to remember: data goes to stdout, and everything about the data to stderr. The output of --json (views.go) is a
// promise to programs; the text for people may change.
package main

import (
	"os"

	"github.com/spf13/cobra"

	_ "github.com/arbe-dev/arbe/cmd/arbe/early" // delays garbage collection during the start
)

func main() {
	cobra.EnableCommandSorting = false // help lists verbs in the order of the tables
	signals, ctx := watchSignals()
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv, signals: signals}
	os.Exit(a.run(ctx, os.Args[1:]))
}
