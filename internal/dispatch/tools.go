package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/turn"
	"github.com/arbe-dev/arbe/internal/wait"
)

const (
	// defaultListed and mostListed limit how many entries or threads a tool shows, and shownText how much of each entry.
	defaultListed, mostListed = 30, 200
	shownText                 = 2 << 10
	// defaultFound and mostFound limit how many entries a search returns.
	defaultFound, mostFound = 20, 50
)

// On whose behalf the tools act, as people read it. All act in the name of their bot, and not of whoever asked it.
const (
	runsAsBot   = "The bot, in its own name. It works in the thread's sandbox, with the secrets and the network that the environment gives to every command."
	readsAsBot  = "The bot, as a member of the house: it reads what every member can read. It changes nothing."
	speaksAsBot = "The bot, in its own name, in any thread of the house. What it says may wake other bots, and what these do follows from the same message of a person."
)

// Tools returns the tools that a bot of the scope's house can have, or, without a bot, those that every bot of the house
// can. Today these are the same for all. A tool acts in the name of its bot, and sees what the bot's house has.
func (d *Dispatcher) Tools(_ context.Context, _ db.Scope, _ string) ([]turn.Tool, error) {
	return d.tools, nil
}

// newTools returns the tools of this package.
func (d *Dispatcher) newTools() []turn.Tool {
	return slices.Concat(d.commandTools(), d.fileTools(), []turn.Tool{
		listing(tool(entry.ReadThreadTool, readThreadAbout, readThreadSchema, d.readForBot)),
		acts(readsAsBot, resultTool(entry.ReadArtifactTool, readArtifactAbout, readArtifactSchema, d.readArtifactForBot)),
		listing(tool(entry.ListThreadsTool, `Lists the threads of this house, the pinned ones first, then those with the latest activity.`,
			`{"type":"object","properties":{
			"limit":{"type":"integer","minimum":1,"maximum":200}},"additionalProperties":false}`, d.listForBot)),
		listing(tool(entry.SearchEntriesTool, `Searches all threads of this house: what was said, and the commands with their output. It finds the entries
that have all words of the query, or words that begin with them, the newest first.`,
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
	}, d.delegateTools(), d.fetchTools())
}

// tool returns a tool whose arguments are decoded into A, and whose result is a text.
func tool[A any](name, description, schema string, run func(context.Context, turn.Call, A) (string, error)) turn.Tool {
	return resultTool(name, description, schema, func(ctx context.Context, c turn.Call, a A) (turn.Result, error) {
		text, err := run(ctx, c, a)
		return turn.Result{Text: text}, err
	})
}

// resultTool returns a tool whose arguments are decoded into A.
func resultTool[A any](name, description, schema string, run func(context.Context, turn.Call, A) (turn.Result, error)) turn.Tool {
	return turn.Tool{
		Tool: model.Tool{Name: name, Description: strings.ReplaceAll(description, "\n", " "), Schema: json.RawMessage(schema)},
		Run: func(ctx context.Context, c turn.Call) (turn.Result, error) {
			var a A
			if err := json.Unmarshal(c.Arguments, &a); err != nil {
				return turn.Result{}, fault.New(fault.Invalid, "the arguments do not fit the tool", "see the tool's schema").Because(err)
			}
			return run(ctx, c, a)
		},
	}
}

// acts says on whose behalf a tool acts.
func acts(behalf string, t turn.Tool) turn.Tool {
	t.Behalf = behalf
	return t
}

// listing marks a tool that shows what others write.
func listing(t turn.Tool) turn.Tool {
	t.Lists = true
	return acts(readsAsBot, t)
}

// inSandbox marks a tool that uses the thread's sandbox. Its first use by a turn brings the workspace's instructions.
func (d *Dispatcher) inSandbox(t turn.Tool) turn.Tool {
	t.Sandbox = true
	run := t.Run
	t.Run = func(ctx context.Context, c turn.Call) (turn.Result, error) {
		got, err := run(ctx, c)
		if err == nil && c.Uninstructed {
			got.Instructions = d.instructions(ctx, c)
		}
		return got, err
	}
	return acts(runsAsBot, t)
}

// awaitResult waits until a command has ended.
func (d *Dispatcher) awaitResult(ctx context.Context, log stream.Ref, command entry.Entry) (entry.CommandResult, error) {
	for event, err := range d.log.Tail(ctx, log, command.Seq) {
		if err != nil {
			return entry.CommandResult{}, err
		}
		if event.Entry == nil || event.Entry.ID != entry.ResultID(command.ID) {
			continue
		}
		if r, ok := entry.As[entry.CommandResult](*event.Entry); ok {
			return r, nil
		}
	}
	if ctx.Err() != nil {
		return entry.CommandResult{}, ctx.Err()
	}
	return entry.CommandResult{}, fault.New(fault.Unavailable, "the thread's log ended before the command did", "try again")
}

// head says in one line what an entry is and who wrote it, as bots read it. The name is last, so that it cannot change
// the meaning of what is before it.
func head(e entry.Entry, author string) string {
	kind := e.Type
	if c, ok := entry.As[entry.Chat](e); ok && c.Confined {
		kind += ", said with a thread's token, so data and not a request,"
	}
	return fmt.Sprintf("entry %d, %s, %s by %s", e.Seq, e.Time.UTC().Format(time.RFC3339), kind, turn.Name(author))
}

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

// searchPatience is how long a search waits until what was just said can be found, and searchPause how often it looks.
const searchPatience, searchPause = 2 * time.Second, 50 * time.Millisecond

type searchArguments struct {
	Query string `json:"query"`
	Limit int    `json:"limit"`
}

func (d *Dispatcher) searchForBot(ctx context.Context, c turn.Call, a searchArguments) (string, error) {
	if a.Limit == 0 {
		a.Limit = defaultFound
	}
	missing, err := d.threads.Unsearchable(ctx, c.Scope)
	for waited := time.Duration(0); missing > 0 && err == nil && waited < searchPatience && wait.For(ctx, searchPause); waited += searchPause {
		missing, err = d.threads.Unsearchable(ctx, c.Scope)
	}
	if err != nil {
		return "", err
	}
	found, err := d.threads.Search(ctx, c.Scope, a.Query, min(a.Limit, mostFound))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if missing > 0 {
		fmt.Fprintf(&b, "%d of the latest or oldest entries cannot be found yet; they are being made searchable\n", missing)
	}
	if len(found) == 0 {
		return b.String() + "nothing was found", nil
	}
	name := d.names(ctx, c)
	for _, f := range found {
		author, err := name(f.Entry.Author)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "thread %s %q, %s\n%s\n", f.Thread, turn.Name(f.ThreadName), head(f.Entry, author), turn.Quote(f.Snippet))
	}
	return b.String(), nil
}

// names returns a function that returns the names of authors, and asks for each once.
func (d *Dispatcher) names(ctx context.Context, c turn.Call) func(author string) (string, error) {
	known := map[string]string{"": "arbe"}
	return func(author string) (string, error) {
		if name, ok := known[author]; ok {
			return name, nil
		}
		p, err := d.config.Bots.Person(ctx, c.Scope, author)
		if err != nil && fault.CodeOf(err) != fault.NotFound {
			return "", err
		}
		known[author] = p.Name
		if p.Name == "" {
			known[author] = "arbe"
		}
		return known[author], nil
	}
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

// sayOnce says something in the name of a call's bot. If the call is repeated, it does nothing. The chat names the turn,
// so that what it makes other bots say counts as said in a row.
func (d *Dispatcher) sayOnce(ctx context.Context, c turn.Call, th thread.Thread, text string) error {
	draft := entry.NewDraft(c.ID, c.Scope.Agent, entry.Chat{Text: text, Turn: &entry.TurnSummary{TurnID: c.Turn}})
	if err := entry.Check(draft, entry.Server); err != nil {
		return err
	}
	entries, err := d.log.Append(ctx, th.Stream(), draft)
	if err != nil {
		return err
	}
	return entry.Repeated(draft, entries[0])
}
