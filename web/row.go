package web

import (
	"context"
	"fmt"

	"github.com/a-h/templ"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/web/guard"
	"github.com/arbe-dev/arbe/web/transcript"
)

// rowsOf renders the rows of a page.
func (a *app) rowsOf(ctx context.Context, all []transcript.Row) []row {
	rows := make([]row, 0, len(all))
	for _, r := range all {
		rows = append(rows, a.rowOf(ctx, r))
	}
	return rows
}

// rowOf renders a row. If that fails, the entry is shown as it is stored.
func (a *app) rowOf(ctx context.Context, r transcript.Row) row {
	if r.Body == nil {
		return row{Row: r}
	}
	return row{Row: r, View: a.safe(ctx, r.Entry, func() templ.Component { return bodyOf(r.Body) }, bodyOf(transcript.AsStored(r.Entry)))}
}

// safe renders a part of an entry. If that fails, it logs the error and returns the component instead, because one entry must
// not make the whole page fail.
func (a *app) safe(ctx context.Context, e entry.Entry, part func() templ.Component, instead templ.Component) (shown templ.Component) {
	err := guard.Run(func() error {
		text, err := rendered(ctx, part())
		shown = templ.Raw(string(text))
		return err
	})
	if err != nil && ctx.Err() != nil {
		return nil // rendering the page fails, too
	}
	if err != nil {
		a.log.ErrorContext(ctx, "web: an entry cannot be rendered", "thread", e.StreamID, "seq", e.Seq, "type", e.Type, "error", err)
		return instead
	}
	return shown
}

// bodyOf returns the view of a row's body.
func bodyOf(b transcript.Body) templ.Component {
	switch b := b.(type) {
	case transcript.Chat:
		return chatBody(b)
	case transcript.Command:
		return commandBlock(b)
	case transcript.CommandEnd:
		return commandEnd(b)
	case transcript.BuildFailure:
		return preparationFailed(b.Step)
	case transcript.Step:
		return stepBody(b)
	case transcript.Call:
		return callRow(b)
	case transcript.Compaction:
		return compactionBody(b)
	case transcript.TurnEnd:
		return turnEnd(b)
	case transcript.Approval:
		return approvalCard(b)
	case transcript.Refused:
		return refusedLine(b)
	case transcript.Spawned:
		return spawnedCard(b)
	case transcript.ChildEnd:
		return childEnd(b)
	case transcript.RunEnd:
		return runEnd(b)
	case transcript.Note:
		return noteLine(b)
	case transcript.StatusNote:
		class := statusOf(b.To).Class
		return noteLine(transcript.Note{Class: class, Icon: "s-" + class, Words: b.Words})
	case transcript.WhyNote:
		return whyLine(b)
	case transcript.ForkedFrom:
		return forkLine(b)
	case transcript.Generic:
		return genericBody(b)
	}
	panic(fmt.Sprintf("there is no view of a %T", b))
}

// sourceOf returns the source of transcripts, with the names of these people.
func (a *app) sourceOf(p *people) transcript.Source {
	return transcript.Source{Log: a.services.entries, Messages: &a.messages, Artifacts: a.services.artifacts, Threads: a.services.threads, People: p, Logger: a.log}
}
