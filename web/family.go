package web

import (
	"context"
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/web/transcript"
)

// family holds the children of a thread as its page shows them: in the list of its details, and in the cards of its log.
type family struct {
	list string
	rows section
	// cards holds the states that the cards show, by the ids of children.
	cards map[string]string
	// all reports that the thread has no other children, so that a child that is not here was deleted.
	all bool
}

func familyOf(ctx context.Context, k relatives) (*family, error) {
	f := &family{rows: section{within: "kids-list", rows: map[string]string{}}, cards: map[string]string{}, all: !k.MoreChildren}
	list, err := rendered(ctx, kids(k))
	if err != nil {
		return nil, err
	}
	f.list = string(list)
	for _, t := range k.Children {
		row, err := rendered(ctx, kid(t))
		if err != nil {
			return nil, err
		}
		id := "kid-" + t.Id
		f.rows.ids, f.rows.rows[id] = append(f.rows.ids, id), string(row)
		card, err := rendered(ctx, childState(transcript.Child{Thread: t.Id, Row: t, Own: true}))
		if err != nil {
			return nil, err
		}
		f.cards[t.Id] = string(card)
	}
	return f, nil
}

// whole also marks the cards of deleted threads. It replaces only the contents of such a card, so that the card of a child that
// is too new to be known here comes back with the child's next change.
func (f *family) whole() []patch {
	patches := []patch{{Selector: "#kids", HTML: f.list}}
	others := ".child-state.own"
	for _, row := range f.rows.ids {
		id := strings.TrimPrefix(row, "kid-")
		patches = append(patches, patch{Selector: "#" + childKey(id), HTML: f.cards[id]})
		others += ":not(#" + childKey(id) + ")"
	}
	if f.all {
		patches = append(patches, goneChild(others))
	}
	return patches
}

func (f *family) since(old *family) []patch {
	var patches []patch
	if len(f.rows.ids) > shownKids == (len(old.rows.ids) > shownKids) && len(f.rows.ids) > 0 && len(old.rows.ids) > 0 && f.all == old.all {
		patches = f.rows.since(old.rows)
	} else if f.list != old.list {
		patches = []patch{{Selector: "#kids", HTML: f.list}}
	}
	for _, row := range f.rows.ids {
		if id := strings.TrimPrefix(row, "kid-"); f.cards[id] != old.cards[id] {
			patches = append(patches, patch{Selector: "#" + childKey(id), HTML: f.cards[id]})
		}
	}
	for _, row := range old.rows.ids {
		if f.all && !slices.Contains(f.rows.ids, row) {
			patches = append(patches, goneChild("#"+childKey(strings.TrimPrefix(row, "kid-"))))
		}
	}
	return patches
}

// goneChild marks cards whose threads were deleted.
func goneChild(selector string) patch {
	return patch{Selector: selector, Mode: "inner", HTML: `<span class="quiet gone">` + childGoneWords + `</span>`}
}
