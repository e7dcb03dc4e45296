package web

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// The limits of a download. The command line writes longer threads, too.
const (
	maxExportEntries = 100_000
	maxExportBytes   = 256 << 20
	maxExportTime    = 10 * time.Minute
)

// exportThread sends a thread as a file, while it is read from the log.
func (a *app) exportThread(w http.ResponseWriter, r *http.Request) error {
	format := r.URL.Query().Get("format")
	kind, ending := "text/markdown; charset=utf-8", ".md"
	switch format {
	case "markdown", "talk":
	case "json":
		kind, ending = "application/x-ndjson", ".jsonl"
	default:
		return fault.New(fault.Invalid, "a thread is exported as markdown or json", "go back and choose one of them")
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxExportTime)
	defer cancel()
	res, err := a.services.threads.GetThread(ctx, &arbev1.GetThreadRequest{Id: r.PathValue("thread")})
	if err != nil {
		return err
	}
	if res.Thread.Tail > maxExportEntries {
		return fault.Newf(fault.Exhausted, "export it on the command line: arbe thread export "+res.Thread.Id,
			"the thread has more than the %d entries that a page exports", maxExportEntries)
	}
	x, err := export.Open(ctx, export.Services{Houses: a.services.houses, Agents: a.services.agents, Entries: a.services.entries}, res.Thread)
	if err != nil {
		return err
	}
	d := &download{to: w, kind: kind, name: exportName(res.Thread) + ending}
	err = x.Write(ctx, format, d)
	if err != nil && d.sent > 0 {
		a.log.WarnContext(ctx, "web: an export broke off", "error", faultOf(err).Detail())
		panic(http.ErrAbortHandler) // otherwise the browser would take a part for the whole
	}
	return err
}

// download is a file that a browser saves. Its headers are sent with the first bytes, so that an error before them is a page.
type download struct {
	to         http.ResponseWriter
	kind, name string
	sent       int
}

func (d *download) Write(p []byte) (int, error) {
	if d.sent == 0 {
		h := d.to.Header()
		h.Set("Content-Type", d.kind)
		h.Set("Content-Disposition", `attachment; filename="`+d.name+`"`)
		h.Set("Cache-Control", "private, no-store")
	}
	if d.sent += len(p); d.sent > maxExportBytes {
		return 0, tooLarge(maxExportBytes)
	}
	return d.to.Write(p)
}

// exportName returns the name of a thread's file, without its ending: letters and digits of the title, and the id. So the title
// cannot end the header's quotes, and has no special meaning in a file system.
func exportName(t *arbev1.Thread) string {
	words := strings.FieldsFunc(strings.ToLower(t.Name), func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') })
	name := strings.Join(words, "-")
	return strings.Trim(name[:min(len(name), 60)]+"-"+t.Id, "-")
}
