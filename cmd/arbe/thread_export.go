package main

import (
	"bufio"
	"context"
	"io"
	"iter"
	"os"
	"slices"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
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
			"entries, then every entry as arbe thread entries read --json prints it. It has the former texts of edited and\n" +
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
		x, err := a.openExport(ctx, c, firstOf(args))
		if err != nil {
			return err
		}
		switch {
		case toFile:
			err = writeWhole(path, func(to io.Writer) error { return x.write(ctx, format, to) })
		case format == "json":
			err = unwrittenStdout(x.lines(ctx, a.printJSON))
		default:
			err = unwrittenStdout(x.write(ctx, format, a.out))
		}
		if err != nil || !toFile {
			return err
		}
		a.say("wrote %d entries of thread %s to %s", x.end, x.thread.GetId(), oneLine(path))
		return nil
	})
	return cmd
}

// export is a thread as it is at one time.
type export struct {
	app    *app
	client *arbe.Client

	thread *arbev1.Thread
	house  exportedHouse
	agents []agentView // those who spoke, in the order in which they began to
	end    int64       // the position of the last entry
	at     time.Time
}

// exportVersion is the version of the JSON format. It changes when a program that reads the present version would fail.
const exportVersion = 1

// exportView is the first line of an export.
type exportView struct {
	Format     string        `json:"format"` // "arbe.thread"
	Version    int           `json:"version"`
	ExportedAt time.Time     `json:"exported_at"`
	House      exportedHouse `json:"house"`
	Thread     threadView    `json:"thread"`
	// Agents are those who said something or ran a command.
	Agents []agentView `json:"agents"`
	// Entries is the number of lines that follow.
	Entries int64 `json:"entries"`
}

// exportedHouse has no name if the credential is for the thread only.
type exportedHouse struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
}

// openExport looks up what the head of an export says.
func (a *app) openExport(ctx context.Context, c *arbe.Client, named string) (*export, error) {
	thread, err := a.getThread(ctx, c, named)
	if err != nil {
		return nil, err
	}
	x := &export{app: a, client: c, thread: thread, house: exportedHouse{ID: thread.GetHouseId()}, agents: []agentView{}}
	last, err := c.Entries.List(ctx, &arbev1.ListRequest{ThreadId: thread.GetId(), Last: true, Limit: 1})
	if err != nil {
		return nil, err
	}
	x.end, x.at = last.GetTail(), time.Now().UTC().Truncate(time.Second)
	house, err := c.Houses.GetHouse(ctx, &arbev1.GetHouseRequest{Id: x.house.ID})
	if err != nil && !unseen(err) {
		return nil, err
	}
	x.house.Name = house.GetHouse().GetName()
	// The head names those who spoke, so the log is read twice: it may be too long to keep.
	speech := []string{entry.Chat{}.Type(), entry.Command{}.Type(), entry.PiAssistant{}.Type()}
	for e, err := range x.entries(ctx, speech...) {
		if err != nil {
			return nil, err
		}
		id := e.GetAuthorAgentId()
		if id == "" || slices.ContainsFunc(x.agents, func(a agentView) bool { return a.ID == id }) {
			continue
		}
		found, err := c.Agents.GetAgent(ctx, &arbev1.GetAgentRequest{HouseId: x.house.ID, Id: id})
		if err != nil && !unseen(err) {
			return nil, err
		}
		spoke := viewAgent(found.GetAgent())
		spoke.ID, spoke.Name = id, first(spoke.Name, id)
		x.agents = append(x.agents, spoke)
	}
	return x, nil
}

// unseen reports that something does not exist, or is not the caller's to see.
func unseen(err error) bool {
	code := connect.CodeOf(err)
	return code == connect.CodeNotFound || code == connect.CodePermissionDenied
}

// entries yields the entries up to the end, in order: those of some types, or all.
func (x *export) entries(ctx context.Context, types ...string) iter.Seq2[*arbev1.Entry, error] {
	return func(yield func(*arbev1.Entry, error) bool) {
		for at := int64(0); at < x.end; {
			page, err := x.client.Entries.List(ctx, &arbev1.ListRequest{ThreadId: x.thread.GetId(), After: at, Limit: int32(min(pageSize, x.end-at)), Types: types})
			if err != nil {
				yield(nil, err)
				return
			}
			before := at
			for _, e := range page.GetEntries() {
				if at = e.GetSeq(); at > x.end {
					return
				}
				if !yield(e, nil) {
					return
				}
			}
			if at = max(at, page.GetSearched()); at == before {
				yield(nil, fault.Newf(fault.Unavailable, "try again", "the thread has %d entries, but only %d of them can be read", x.end, at))
				return
			}
		}
	}
}

// write writes the export in a format.
func (x *export) write(ctx context.Context, format string, to io.Writer) (err error) {
	out := bufio.NewWriter(to)
	if format == "json" {
		err = x.lines(ctx, func(view any) error { return encodeJSON(out, view) })
	} else {
		err = x.markdown(ctx, out)
	}
	if err != nil {
		return err
	}
	return out.Flush()
}

// lines prints the export as JSON, a line at a time.
func (x *export) lines(ctx context.Context, print func(view any) error) error {
	err := print(exportView{Format: "arbe.thread", Version: exportVersion, ExportedAt: x.at, House: x.house, Thread: viewThread(x.thread), Agents: x.agents, Entries: x.end})
	if err != nil {
		return err
	}
	for e, err := range x.entries(ctx) {
		if err != nil {
			return err
		}
		if err := print(viewEntry(e)); err != nil {
			return err
		}
	}
	return nil
}

// markdown writes the export as a document.
func (x *export) markdown(ctx context.Context, out *bufio.Writer) error {
	names := entryPrinter{app: x.app, client: x.client, thread: x.thread.GetId(), house: x.house.ID, names: map[string]string{}}
	for _, a := range x.agents {
		names.names[a.ID] = a.Name
	}
	m := newMarkdown(out, func(id string) string { return names.author(ctx, id) })
	m.head(x)
	for e, err := range x.entries(ctx) {
		if err != nil {
			return err
		}
		m.entry(e)
		if _, err := out.Write(nil); err != nil {
			return err // the first error of writing
		}
	}
	return nil
}
