package inbox

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
)

// back is how many of the last entries of some work are searched for the one that says how it ended. Few entries follow it.
const back = 8

// The kinds of entries that say why work failed, and what it finished with.
var (
	failures = []string{entry.TurnEnded{}.Type(), entry.RunFinished{}.Type(), entry.PiFailed{}.Type(), entry.SessionOrphaned{}.Type()}
	results  = []string{entry.Chat{}.Type(), entry.RunFinished{}.Type()}
)

// causesTx sets who needs the member and their sentence, for the most urgent reason of each thread.
func (b *Inboxes) causesTx(ctx context.Context, tx pgx.Tx, scope db.Scope, needs []Need) error {
	at := make(map[string]*Need, len(needs))
	by := query.CausesParams{HouseID: scope.House, AgentID: scope.Agent, Back: back, Failed: failures, Finished: results, Mentions: []string{}, Failures: []string{}, Answers: []string{}}
	requests := []string{}
	for i := range needs {
		n := &needs[i]
		at[n.Thread] = n
		switch {
		case n.Approval:
			requests = append(requests, n.Thread)
		case n.Mention:
			by.Mentions = append(by.Mentions, n.Thread)
		case n.Failed:
			by.Failures = append(by.Failures, n.Thread)
		default:
			by.Answers = append(by.Answers, n.Thread)
		}
	}
	if len(requests) > 0 {
		asked, err := b.q.OpenRequests(ctx, tx, scope.House, requests)
		if err != nil {
			return err
		}
		for _, r := range asked {
			n := at[r.ThreadID]
			n.By.ID, n.Text = r.AgentID, entry.OneLine(request(r.Tool, r.Question, r.Arguments), MaxText)
		}
	}
	if len(requests) < len(needs) {
		causes, err := b.q.Causes(ctx, tx, by)
		if err != nil {
			return err
		}
		for _, c := range causes {
			n := at[c.ThreadID]
			var text string
			n.By.ID, text = cause(c)
			n.Text = entry.OneLine(text, MaxText)
		}
	}
	return b.nameTx(ctx, tx, needs)
}

// nameTx sets the names of the agents who need a member.
func (b *Inboxes) nameTx(ctx context.Context, tx pgx.Tx, needs []Need) error {
	var ids []string
	for _, n := range needs {
		if n.By.ID != "" && !slices.Contains(ids, n.By.ID) {
			ids = append(ids, n.By.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	names, err := b.q.NamesOf(ctx, tx, ids)
	for _, r := range names {
		for i := range needs {
			if by := &needs[i].By; by.ID == r.ID {
				by.Name, by.Kind = r.Name, r.Kind
			}
		}
	}
	return err
}

// cause returns who wrote an entry that needs a member, and its sentence.
func cause(c query.CausesRow) (agent, text string) {
	if c.Edited {
		return c.AgentID, strings.TrimSpace(db.Zero(c.Text))
	}
	p, ok := entry.Decode(entry.Entry{Type: c.Type, Payload: json.RawMessage(c.Payload)})
	if !ok {
		return c.AgentID, ""
	}
	switch p := p.(type) {
	case entry.Chat:
		return c.AgentID, p.Plain()
	case entry.TurnEnded:
		return p.AgentID, p.Message
	case entry.PiFailed:
		return c.AgentID, p.Error
	case entry.SessionOrphaned:
		return c.AgentID, p.Plain()
	case entry.RunFinished:
		if c.Kind == "failed" {
			return c.AgentID, p.Error
		}
		return c.AgentID, p.Result
	}
	return c.AgentID, ""
}

// telling are the arguments that tell most about a call, the best first.
var telling = []string{"command", "question", "path", "file_path", "url", "text", "query"}

// request returns what a bot asks people: its question, or the call that it wants to make.
func request(tool string, question bool, arguments string) string {
	if question {
		var asked struct {
			Questions []struct {
				Question string `json:"question"`
			} `json:"questions"`
		}
		if json.Unmarshal([]byte(arguments), &asked) == nil && len(asked.Questions) > 0 {
			return asked.Questions[0].Question
		}
	}
	detail := ""
	if list := entry.Arguments(json.RawMessage(arguments)); arguments != "" && len(list) > 0 {
		detail = list[0].Value
		for _, name := range telling {
			if i := slices.IndexFunc(list, func(a entry.Argument) bool { return a.Name == name }); i >= 0 {
				detail = list[i].Value
				break
			}
		}
	}
	switch {
	case question && detail != "":
		return detail
	case question:
		return "asks a question"
	case detail == "":
		return "wants to call " + tool
	}
	return "wants to call " + tool + ": " + detail
}
