// Package export writes threads and entries of the API for people and programs: a thread as a document or as JSON, and
// entries in lines of plain text and in the JSON that arbe --json prints.
//
// It reads through the services with the caller's credential, so it writes only what the caller may read.
package export

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"iter"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

// Services are the services from which an export reads.
type Services struct {
	Houses  arbev1connect.HouseServiceClient
	Agents  arbev1connect.AgentServiceClient
	Entries arbev1connect.EntryServiceClient
}

// Export is a thread at one point in time.
type Export struct {
	Thread *arbev1.Thread
	End    int64 // the position of the last entry

	from   Services
	house  house
	agents []Agent           // those who spoke, in the order of their first words
	names  map[string]string // the names of agents, by id
	at     time.Time
}

// version is the version of the JSON format. It changes only when programs that read the current version would fail.
const version = 1

// Head is the first line of an export as JSON.
type Head struct {
	Format     string    `json:"format"` // "arbe.thread"
	Version    int       `json:"version"`
	ExportedAt time.Time `json:"exported_at"`
	House      house     `json:"house"`
	Thread     Thread    `json:"thread"`
	// Agents are those who said something or ran a command.
	Agents []Agent `json:"agents"`
	// Entries is the number of lines that follow.
	Entries int64 `json:"entries"`
}

// house has no name if the credential is for the thread only.
type house struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
}

// Open reads the facts for the head of an export.
func Open(ctx context.Context, from Services, thread *arbev1.Thread) (*Export, error) {
	x := &Export{Thread: thread, from: from, house: house{ID: thread.GetHouseId()}, agents: []Agent{}, names: map[string]string{}}
	last, err := from.Entries.List(ctx, &arbev1.ListRequest{ThreadId: thread.GetId(), Last: true, Limit: 1})
	if err != nil {
		return nil, err
	}
	x.End, x.at = last.GetTail(), time.Now().UTC().Truncate(time.Second)
	found, err := from.Houses.GetHouse(ctx, &arbev1.GetHouseRequest{Id: x.house.ID})
	if err != nil && !unseen(err) {
		return nil, err
	}
	x.house.Name = found.GetHouse().GetName()
	// The head names everybody who spoke, so the log is read twice: it may be too long to keep in memory.
	speech := []string{entry.Chat{}.Type(), entry.Command{}.Type(), entry.PiAssistant{}.Type()}
	for e, err := range x.entries(ctx, speech...) {
		if err != nil {
			return nil, err
		}
		id := e.GetAuthorAgentId()
		if id == "" || slices.ContainsFunc(x.agents, func(a Agent) bool { return a.ID == id }) {
			continue
		}
		spoke, err := x.agent(ctx, id)
		if err != nil {
			return nil, err
		}
		x.agents = append(x.agents, spoke)
	}
	return x, nil
}

// agent looks up an agent. If the caller may not see the agent, the id is the name.
func (x *Export) agent(ctx context.Context, id string) (Agent, error) {
	found, err := x.from.Agents.GetAgent(ctx, &arbev1.GetAgentRequest{HouseId: x.house.ID, Id: id})
	if err != nil && !unseen(err) {
		return Agent{}, err
	}
	a := ViewAgent(found.GetAgent())
	a.ID, a.Name = id, cmp.Or(a.Name, id)
	x.names[id] = a.Name
	return a, nil
}

// unseen reports whether an error means that something does not exist, or that the caller may not see it.
func unseen(err error) bool {
	code := connect.CodeOf(err)
	return code == connect.CodeNotFound || code == connect.CodePermissionDenied
}

// pageSize is how many entries to read at once: the most that a server returns.
const pageSize = 1000

// entries yields the entries up to the end, in order: those of some types, or all.
func (x *Export) entries(ctx context.Context, types ...string) iter.Seq2[*arbev1.Entry, error] {
	return func(yield func(*arbev1.Entry, error) bool) {
		for at := int64(0); at < x.End; {
			page, err := x.from.Entries.List(ctx, &arbev1.ListRequest{ThreadId: x.Thread.GetId(), After: at, Limit: int32(min(pageSize, x.End-at)), Types: types})
			if err != nil {
				yield(nil, err)
				return
			}
			before := at
			for _, e := range page.GetEntries() {
				if at = e.GetSeq(); at > x.End {
					return
				}
				if !yield(e, nil) {
					return
				}
			}
			if at = max(at, page.GetSearched()); at == before {
				yield(nil, fault.Newf(fault.Unavailable, "try again", "the thread has %d entries, but only %d of them can be read", x.End, at))
				return
			}
		}
	}
}

// Write writes the export in a format: markdown, talk or json. Talk is a document like markdown with only what people and bots
// said, without their work.
func (x *Export) Write(ctx context.Context, format string, to io.Writer) (err error) {
	out := bufio.NewWriter(to)
	if format == "json" {
		err = x.Lines(ctx, func(view any) error { return EncodeJSON(out, view) })
	} else {
		err = x.markdown(ctx, out, format == "talk")
	}
	if err != nil {
		return err
	}
	return out.Flush()
}

// Lines prints the export as JSON, a line at a time.
func (x *Export) Lines(ctx context.Context, print func(view any) error) error {
	err := print(Head{Format: "arbe.thread", Version: version, ExportedAt: x.at, House: x.house, Thread: ViewThread(x.Thread), Agents: x.agents, Entries: x.End})
	if err != nil {
		return err
	}
	for e, err := range x.entries(ctx) {
		if err != nil {
			return err
		}
		if err := print(ViewEntry(e)); err != nil {
			return err
		}
	}
	return nil
}
