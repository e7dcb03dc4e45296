package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// listing selects the entries of a log to print.
type listing struct {
	thread string
	from   int64
	tail   int
	types  []string
	follow bool
}

// pageSize is the number of entries per request: the most that a server returns.
const pageSize = 1000

func threadEntriesList(a *app) *cobra.Command {
	var l listing
	cmd := &cobra.Command{
		Use:   "list [THREAD]",
		Short: "Print the log of a thread, and follow it",
		Long: "Print the log of a thread. THREAD defaults to $ARBE_THREAD. --follow prints new entries as they\n" +
			"arrive, across lost connections and server restarts, until Ctrl-C.",
		Example: "  arbe thread entries list th4w7q2m9x --tail 20 --follow\n" +
			"  arbe thread entries list th4w7q2m9x --type chat --json | jq -r .payload.text",
		Args:              takes(0, 1, "one thread"),
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) (err error) {
			if l.from < 1 || l.tail < 0 {
				return fault.New(fault.Invalid, "--from is below 1, or --tail below 0", "positions start at 1")
			}
			if l.thread, err = a.threadID(ctx, c, firstOf(args)); err != nil {
				return err
			}
			p := &entryPrinter{app: a, client: c, thread: l.thread}
			at, err := l.print(ctx, c, p)
			if err != nil || !l.follow {
				return err
			}
			return l.followFrom(ctx, c, at, p)
		}),
	}
	flags := cmd.Flags()
	flags.Int64Var(&l.from, "from", 1, "first position to print")
	flags.IntVar(&l.tail, "tail", 0, "only the last `N` existing entries; 0 is all")
	flags.StringSliceVar(&l.types, "type", nil, "only entries of this type, or of a group of types such as signal (may be repeated)")
	flags.BoolVarP(&l.follow, "follow", "f", false, "keep printing new entries until Ctrl-C")
	return cmd
}

// wants reports whether an entry's type is requested: "signal" includes "signal.thread.status_changed".
func (l *listing) wants(e *arbev1.Entry) bool {
	return len(l.types) == 0 || slices.ContainsFunc(l.types, func(t string) bool {
		return e.GetType() == t || strings.HasPrefix(e.GetType(), t+".")
	})
}

// print prints the existing entries, and returns the position that it has reached.
func (l *listing) print(ctx context.Context, c *arbe.Client, p *entryPrinter) (at int64, err error) {
	if l.tail > 0 {
		return l.printLast(ctx, c, p)
	}
	end := int64(-1) // the log's end at the start: a busy log might never be read to its current end
	for at = l.from - 1; ; {
		page, err := c.Entries.List(ctx, &arbev1.ListRequest{ThreadId: l.thread, After: at, Limit: pageSize, Types: l.types})
		if err != nil {
			return at, err
		}
		if end < 0 {
			end = page.GetTail()
		}
		for _, e := range page.GetEntries() {
			if err := p.entry(ctx, e); err != nil {
				return at, err
			}
			at = e.GetSeq()
		}
		at = max(at, page.GetSearched())
		if at >= end || len(page.GetEntries()) == 0 && len(l.types) == 0 {
			return at, nil
		}
	}
}

// printLast prints the last requested entries. It searches backwards from the end, so that it does not read all of a long
// log.
func (l *listing) printLast(ctx context.Context, c *arbe.Client, p *entryPrinter) (end int64, err error) {
	var pages [][]*arbev1.Entry // the last page first
	missing := l.tail
	for req := (&arbev1.ListRequest{ThreadId: l.thread, After: l.from - 1, Last: true, Types: l.types}); missing > 0; {
		req.Limit = int32(min(missing, pageSize))
		page, err := c.Entries.List(ctx, req)
		if err != nil {
			return 0, err
		}
		if req.Before == 0 {
			end = page.GetTail()
		}
		entries := page.GetEntries()
		pages = append(pages, entries)
		missing -= len(entries)
		if len(l.types) > 0 {
			req.Before = page.GetSearched()
		} else if req.Before = l.from; len(entries) > 0 {
			req.Before = entries[0].GetSeq()
		}
		if req.Before <= l.from {
			break
		}
	}
	for _, entries := range slices.Backward(pages) {
		for _, e := range entries {
			if err := p.entry(ctx, e); err != nil {
				return 0, err
			}
		}
	}
	return end, nil
}

func (l *listing) printOne(ctx context.Context, p *entryPrinter, e *arbev1.Entry) error {
	if !l.wants(e) {
		return nil
	}
	return p.entry(ctx, e)
}

// followFrom prints new entries after a position until Ctrl-C.
func (l *listing) followFrom(ctx context.Context, c *arbe.Client, at int64, p *entryPrinter) error {
	for event, err := range p.app.follow(ctx, c, l.thread, at) {
		if err != nil {
			return err
		}
		switch {
		case event.GetEntry() != nil:
			err = l.printOne(ctx, p, event.GetEntry())
		case event.GetDelta() != nil && len(l.types) == 0:
			err = p.delta(event.GetDelta())
		}
		if err != nil {
			return err
		}
	}
	return nil
}
