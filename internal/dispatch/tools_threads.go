package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/turn"
	"github.com/arbe-dev/arbe/internal/wait"
)

// threadTools returns the tools that list, search, create and speak in a house's threads.
func (d *Dispatcher) threadTools() []turn.Tool {
	return []turn.Tool{
		listing(tool(entry.ListThreadsTool, `Lists the threads of this house, the pinned ones first, then those with the latest activity.`,
			`{"type":"object","properties":{
			"limit":{"type":"integer","minimum":1,"maximum":200}},"additionalProperties":false}`, d.listForBot)),
		listing(tool(entry.SearchEntriesTool, `Searches all threads of this house: what was said, and the commands with their output. It finds the entries
that have all words of the query, or words that begin with them, the newest first. Filters narrow it: from:NAME (from:me is you), in:THREAD,
type:message, type:answer, type:command, type:output, is:failed, after:2026-01-31, before:2026-01-31.`,
			`{"type":"object","properties":{
			"query":{"type":"string","minLength":1,"maxLength":1000},
			"limit":{"type":"integer","minimum":1,"maximum":50}},"required":["query"],"additionalProperties":false}`, d.searchForBot)),
		acts(speaksAsBot, tool(entry.CreateThreadTool, `Creates a thread in this house, and returns its id.`,
			`{"type":"object","properties":{
			"name":{"type":"string","minLength":1,"maxLength":200},
			"text":{"type":"string","description":"a first message, in your name"}},"required":["name"],"additionalProperties":false}`, d.createForBot)),
		acts(speaksAsBot, tool(entry.SayTool, `Says something in another thread of this house, in your name. Your answer in this thread needs no tool.`,
			`{"type":"object","properties":{
			"thread_id":{"type":"string","minLength":1},
			"text":{"type":"string","minLength":1}},"required":["thread_id","text"],"additionalProperties":false}`, d.sayForBot)),
	}
}

// defaultFound and mostFound limit the entries that a search returns.
const defaultFound, mostFound = 20, 50

type listArguments struct {
	Limit int `json:"limit"`
}

func (d *Dispatcher) listForBot(ctx context.Context, c turn.Call, a listArguments) (string, error) {
	if a.Limit == 0 {
		a.Limit = defaultListed
	}
	list, err := d.threads.List(ctx, c.Scope, thread.Filter{Limit: min(a.Limit, mostListed)})
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, th := range list {
		fmt.Fprintf(&b, "%s %q %s, last active %s", th.ID, turn.Name(th.Name), th.Status, th.LastActivity.UTC().Format(time.RFC3339))
		if th.ID == c.Thread {
			b.WriteString(" (this thread)")
		}
		b.WriteByte('\n')
	}
	return b.String(), nil
}

// searchPatience limits the wait until recent entries can be found, and searchPause is the pause between two checks.
const searchPatience, searchPause = 2 * time.Second, 50 * time.Millisecond

type searchArguments struct {
	Query string `json:"query"`
	Limit int    `json:"limit"`
}

func (d *Dispatcher) searchForBot(ctx context.Context, c turn.Call, a searchArguments) (string, error) {
	find, err := thread.ParseFind(a.Query)
	if err != nil {
		return "", err
	}
	missing, err := d.unsearchable(ctx, c.Scope)
	if err != nil {
		return "", err
	}
	found, named, err := d.threads.Find(ctx, c.Scope, find, min(cmp.Or(a.Limit, defaultFound), mostFound))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if missing > 0 {
		fmt.Fprintf(&b, "%d of the latest or oldest entries are still being indexed and cannot be found yet\n", missing)
	}
	if len(found)+len(named) == 0 {
		return b.String() + "nothing was found", nil
	}
	for _, n := range named {
		fmt.Fprintf(&b, "thread %s is named %q\n", n.Thread, turn.Name(n.Name))
	}
	text, err := foundText(found, d.names(ctx, c))
	if err != nil {
		return "", err
	}
	return b.String() + text, nil
}

// unsearchable returns how many entries cannot be found yet. It waits a little for them.
func (d *Dispatcher) unsearchable(ctx context.Context, scope db.Scope) (missing int64, err error) {
	missing, err = d.threads.Unsearchable(ctx, scope)
	for waited := time.Duration(0); missing > 0 && err == nil && waited < searchPatience && wait.For(ctx, searchPause); waited += searchPause {
		missing, err = d.threads.Unsearchable(ctx, scope)
	}
	return missing, err
}

// foundText shows the entries that were found.
func foundText(found []thread.Found, name func(author string) (string, error)) (string, error) {
	var b strings.Builder
	for _, f := range found {
		author, err := name(f.Entry.Author)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "thread %s %q, %s\n%s\n", f.Thread, turn.Name(f.ThreadName), head(f.Entry, author), turn.Quote(f.Snippet))
	}
	return b.String(), nil
}

type createArguments struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

func (d *Dispatcher) createForBot(ctx context.Context, c turn.Call, a createArguments) (string, error) {
	root, err := d.rootOf(ctx, c)
	if err != nil {
		return "", err
	}
	made, err := d.threads.Create(ctx, c.Scope, thread.Draft{ID: c.ID, Name: a.Name, Root: root, RootMost: d.config.Bots.Roots.WithDefaults().Threads})
	if err != nil {
		return "", err
	}
	if strings.TrimSpace(a.Text) != "" {
		if err := d.sayOnce(ctx, c, made, a.Text); err != nil {
			return "", err
		}
	}
	return "created the thread " + made.ID, nil
}

type sayArguments struct {
	Thread string `json:"thread_id"`
	Text   string `json:"text"`
}

func (d *Dispatcher) sayForBot(ctx context.Context, c turn.Call, a sayArguments) (string, error) {
	if a.Thread == c.Thread {
		return "", fault.New(fault.Invalid, "this is the thread that you answer in", "say it without a tool")
	}
	th, err := d.threads.Get(ctx, c.Scope, a.Thread)
	if err != nil {
		return "", err
	}
	return "said", d.sayOnce(ctx, c, th, a.Text)
}

// sayOnce says something on behalf of a call's bot. Repeating the call does nothing. The chat names the turn, so that the
// answers of other bots to it count as part of the same chain.
func (d *Dispatcher) sayOnce(ctx context.Context, c turn.Call, th thread.Thread, text string) error {
	draft := entry.NewDraft(c.ID, c.Scope.Agent, entry.Chat{Text: text, Turn: &entry.TurnSummary{TurnID: c.Turn}})
	if err := entry.Check(draft, entry.Server); err != nil {
		return err
	}
	if err := d.MayGrow(ctx, c.Scope); err != nil {
		return err
	}
	d.saidIn.note(ctx, th.Stream(), []entry.Draft{draft})
	entries, err := d.log.Append(ctx, th.Stream(), draft)
	if err != nil {
		return err
	}
	return entry.Repeated(draft, entries[0])
}

// rootOf returns the person's entry from which a tool's call follows.
func (d *Dispatcher) rootOf(ctx context.Context, c turn.Call) (root string, err error) {
	err = d.db.In(ctx, db.Scope{House: c.Scope.House, Agent: c.Scope.Agent}, func(tx pgx.Tx) error {
		t, err := turn.GetTx(ctx, tx, c.Turn)
		root = t.Root
		return err
	})
	return root, err
}
