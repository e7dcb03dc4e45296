package runner

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// changesFor limits the whole operation.
const changesFor = 10 * time.Minute

// changesMain runs the commands "apply DIR" and "branch FLAGS DIR".
func changesMain(ctx context.Context, verb string, args, environ []string, out io.Writer) int {
	ctx, cancel := context.WithTimeout(ctx, changesFor)
	defer cancel()
	b, dir, ok := parseChanges(args)
	if !ok {
		fmt.Fprintln(os.Stderr, "usage: arbe-runner "+verb+" DIRECTORY")
		return exitUnusable
	}
	err := func() error {
		work, err := os.Getwd()
		if err != nil {
			return err
		}
		c, err := openChanges(ctx, work, dir, environ)
		if err != nil {
			return err
		}
		defer c.close()
		if verb == "branch" {
			return c.push(ctx, b, out)
		}
		return c.apply(ctx, b.base, out)
	}()
	if err == nil {
		return 0
	}
	fmt.Fprintln(out, err)
	if ctx.Err() != nil {
		fmt.Fprintln(out, "It took too long.")
	}
	return 1
}

// parseChanges reads the flags and the directory.
func parseChanges(args []string) (b branch, dir string, ok bool) {
	// Package flag would make the program too large for a sandbox.
	fields := map[string]*string{"-name": &b.name, "-to": &b.remote, "-base": &b.base, "-title": &b.title, "-author": &b.author, "-date": &b.date}
	for len(args) > 1 {
		name, value, _ := strings.Cut(args[0], "=")
		field, known := fields[name]
		if !known {
			break
		}
		*field, args = value, args[1:]
	}
	if len(args) != 1 {
		return b, "", false
	}
	return b, args[0], true
}
