package main

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
)

func threadExport(a *app) *cobra.Command {
	var format, path string
	var force bool
	cmd := &cobra.Command{
		Use:   "export [THREAD]",
		Short: "Write a thread as a document, or as JSON",
		Long: "Write a thread up to its present end, to stdout or, with --output, into a file that appears complete or not at all.\n" +
			"THREAD defaults to $ARBE_THREAD.\n" +
			"\n" +
			"The format markdown is a document to read and keep: who said what and when, commands with the beginning and the end\n" +
			"of their output, and the work of bots in one line each. Messages have their present texts. Files are named by\n" +
			"their artifacts, and other threads by their ids; neither is included.\n" +
			"\n" +
			"The format json, or --json, has one object per line: first the thread, the agents who spoke and the number of\n" +
			"entries, then every entry as arbe thread entries read --json prints it. It includes the former texts of edited and\n" +
			"deleted messages, too.",
		Example: "  arbe thread export th4w7q2m9x -o login-bug.md\n" +
			"  arbe thread export th4w7q2m9x --format json | gzip >th4w7q2m9x.jsonl.gz",
		Args:              takes(0, 1, "one thread"),
		ValidArgsFunction: a.proposesFirst(a.threads),
	}
	flags := cmd.Flags()
	flags.StringVar(&format, "format", "markdown", "markdown or json")
	flags.StringVarP(&path, "output", "o", "", "file to write; - is stdout")
	flags.BoolVar(&force, "force", false, "replace the file if it exists")
	cmd.RunE = a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
		switch {
		case format != "markdown" && format != "json":
			return fault.Newf(fault.Invalid, "use markdown or json", "there is no format %.40q", format)
		case a.json && format == "markdown" && flags.Changed("format"):
			return fault.New(fault.Invalid, "--json asks for another format than --format markdown", "leave out one of them")
		case a.json:
			format = "json"
		}
		toFile := path != "" && path != "-"
		if info, err := os.Stat(path); toFile && !force && err == nil && info.Mode().IsRegular() {
			return fault.Newf(fault.Invalid, "name another file, or pass --force to replace it", "the file %s exists", path)
		}
		thread, err := a.getThread(ctx, c, firstOf(args))
		if err != nil {
			return err
		}
		x, err := export.Open(ctx, export.Services{Houses: c.Houses, Agents: c.Agents, Entries: c.Entries}, thread)
		if err != nil {
			return err
		}
		switch {
		case toFile:
			err = writeWhole(path, func(to io.Writer) error { return x.Write(ctx, format, to) })
		case format == "json":
			err = unwrittenStdout(x.Lines(ctx, a.printJSON))
		default:
			err = unwrittenStdout(x.Write(ctx, format, a.out))
		}
		if err != nil || !toFile {
			return err
		}
		a.say("wrote %d entries of thread %s to %s", x.End, x.Thread.GetId(), entry.PrintableLine(path))
		return nil
	})
	return cmd
}
