package web

import (
	"context"
	"fmt"
	"strconv"

	"github.com/a-h/templ"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/web/transcript"
)

// keptElements is the number of elements that a page keeps when it removes the beginning of a text that grew too long while
// it was written.
const keptElements = 400

// patchesOf returns the patches that show a change of a thread which an entry made; e is empty for changes that are not yet
// in the log. A part that cannot be rendered is left out, unless the error is needed: then the change is shown with the next
// paint.
func (a *app) patchesOf(ctx context.Context, e entry.Entry, c transcript.Change) ([]patch, error) {
	switch c := c.(type) {
	case transcript.CommandEnded:
		return a.parts(ctx, e, part{c.Key + "-boot", commandBoot(c.Command)}, part{c.Key + "-foot", commandFoot(c.Command)}, part{c.Key + "-out", commandOutput(c.Command)})
	case transcript.CommandBuilt:
		return a.parts(ctx, e, part{c.Key + "-boot", commandBoot(c.Command)})
	case transcript.CallEnded:
		return a.parts(ctx, e, part{c.Key + "-result", callResult(c.Call)}, part{c.Key + "-state", callState(c.Call)})
	case transcript.CallChanged:
		if c.InCommand {
			return a.parts(ctx, e, part{c.Key, callElsewhere(c.Key)})
		}
		return a.parts(ctx, e, part{c.Key + "-state", callState(c.Call)})
	case transcript.ApprovalAnswer:
		return a.parts(ctx, e, part{approvalKey(c.ID), approvalAnswer(c)})
	case transcript.HostAnswer:
		return one(ctx, "."+hostKey(c.Environment, c.Host), "", hostAnswer(c))
	case transcript.OutputPainted:
		return one(ctx, "#"+c.Key+"-out", "", liveOutput(c))
	case transcript.BuildPainted:
		return one(ctx, "#"+c.Key+"-boot", "", liveBuild(c))
	case transcript.FateChanged:
		return a.parts(ctx, e, part{c.Key, fate(c.Fate)})
	case transcript.Rewritten:
		patches, err := one(ctx, "#e"+decimal(c.Entry.Seq)+" > .body", "", entryBody(a.rowOf(ctx, c.Row)))
		if err != nil {
			return nil, err
		}
		reacted, err := one(ctx, "#"+reactionsID(c.Entry.Seq), "", reactionList(c.Row))
		return append(patches, reacted...), err
	case transcript.Reacted:
		return one(ctx, "#"+reactionsID(c.Entry.Seq), "", reactionList(c.Row))
	case transcript.TurnGone:
		return []patch{{Selector: "#" + c.Key, Mode: "remove"}}, nil
	case transcript.TurnChange:
		return turnPatches(ctx, c)
	}
	return nil, fmt.Errorf("there is no patch for a %T", c)
}

// part returns the current content of the element with an id.
type part struct {
	id   string
	view templ.Component
}

// parts returns the patches of parts of an entry.
func (a *app) parts(ctx context.Context, e entry.Entry, all ...part) (patches []patch, err error) {
	for _, p := range all {
		shown := a.safe(ctx, e, func() templ.Component { return p.view }, nil)
		if shown == nil {
			continue
		}
		text, err := rendered(ctx, shown)
		if err != nil {
			return nil, err
		}
		patches = append(patches, patch{Selector: "#" + p.id, HTML: string(text)})
	}
	return patches, nil
}

// one returns one patch.
func one(ctx context.Context, selector, mode string, view templ.Component) ([]patch, error) {
	text, err := rendered(ctx, view)
	return []patch{{Selector: selector, Mode: mode, HTML: string(text)}}, err
}

// turnPatches returns the patches that put a turn in progress into its place. The first one creates the block if the page
// does not have it.
func turnPatches(ctx context.Context, c transcript.TurnChange) (patches []patch, err error) {
	add := func(selector, mode string, view templ.Component) {
		var added []patch
		if err == nil {
			added, err = one(ctx, selector, mode, view)
			patches = append(patches, added...)
		}
	}
	if c.New {
		place := "#writing:not(:has(#" + c.Key + "))"
		patches = []patch{{Selector: place, Mode: "append", HTML: `<article id="` + c.Key + `"></article>`}}
		add("#"+c.Key, "", writingTurn(c.TurnAtWork))
		return patches, err
	}
	if c.WordChanged {
		add("#"+c.Key+"-word", "", writingWord(c.TurnAtWork))
	}
	if c.CutChange {
		add("#"+c.Key+"-cut", "", writingCut(c.TurnAtWork))
	}
	for i, b := range c.Blocks {
		switch change := c.Changes[i]; {
		case change.New:
			add("#"+c.Key+"-step", "append", writtenPart(b))
		case change.Replaced:
			add("#"+b.Key, "", writtenPart(b))
		case b.Kind == "thinking" && b.Text != "":
			add("#"+b.Key+"-more", "append", writtenMore(b.Text))
		case b.Kind == "text":
			if b.HTML != "" {
				add("#"+b.Key+"-end", "before", templ.Raw(b.HTML))
			}
			if change.Trimmed {
				patches = append(patches, patch{Selector: "#" + b.Key + " > :nth-last-child(n+" + strconv.Itoa(keptElements+1) + ")", Mode: "remove"})
			}
			if change.EndChanged {
				add("#"+b.Key+"-end", "", writtenEnd(b))
			}
		}
	}
	return patches, err
}
