package web

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"github.com/a-h/templ"
	"google.golang.org/protobuf/proto"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

const (
	// pageOfThreads is how many threads a page of a house's list has, and the places show.
	pageOfThreads = 100
	// maxPatches is how many patches of a listing are sent at most; when more has changed, the whole is.
	maxPatches = 40
)

// digest says which threads a page shows, and how.
func (f layout) digest() string {
	sum := sha256.New()
	_, _ = sum.Write([]byte(f.Next)) // a hash takes everything
	for _, t := range f.Threads {
		text, err := proto.MarshalOptions{Deterministic: true}.Marshal(t)
		if err != nil {
			return "" // no page has this digest
		}
		_, _ = sum.Write(text)
	}
	return hex.EncodeToString(sum.Sum(nil)[:12])
}

// listing is a list of threads as HTML: what is around the rows, and the rows.
type listing struct {
	id, digest, html string
	// shape says which parts there are around the rows; singles are those of them that change by themselves, by
	// their ids.
	shape   string
	singles map[string]string
	// sections are the runs of rows.
	sections []section
}

// section is a run of rows, by their ids.
type section struct {
	// after is the element before the first row, or within the one around all rows.
	after, within string
	ids           []string
	rows          map[string]string
}

func (l *listing) cursor() string { return l.digest }

func (l *listing) whole() []patch { return []patch{{Selector: "#" + l.id, HTML: l.html}} }

func (l *listing) since(before view) []patch {
	old, ok := before.(*listing)
	if !ok || old.shape != l.shape {
		return l.whole()
	}
	var patches []patch
	for _, id := range slices.Sorted(maps.Keys(l.singles)) {
		if html := l.singles[id]; html != old.singles[id] {
			patches = append(patches, patch{Selector: "#" + id, HTML: html})
		}
	}
	for i, s := range l.sections {
		patches = append(patches, s.since(old.sections[i])...)
	}
	if len(patches) > maxPatches {
		return l.whole()
	}
	return patches
}

// since are the patches that make the rows of old those of s. A row that moves is taken out first, so that patches
// which come twice double nothing.
func (s section) since(old section) []patch {
	var patches []patch
	for _, id := range old.ids {
		if _, there := s.rows[id]; !there {
			patches = append(patches, patch{Selector: "#" + id, Mode: "remove"})
		}
	}
	stays := unmoved(old.ids, s.ids)
	for i, id := range s.ids {
		switch {
		case stays[id] && s.rows[id] != old.rows[id]:
			patches = append(patches, patch{Selector: "#" + id, HTML: s.rows[id]})
		case !stays[id]:
			at := patch{Selector: "#" + s.within, Mode: "prepend", HTML: s.rows[id]}
			if i > 0 {
				at.Selector, at.Mode = "#"+s.ids[i-1], "after"
			} else if s.after != "" {
				at.Selector, at.Mode = "#"+s.after, "after"
			}
			patches = append(patches, patch{Selector: "#" + id, Mode: "remove"}, at)
		}
	}
	return patches
}

// unmoved are as many as possible of the ids that are in both lists and come in the same order in both.
func unmoved(old, now []string) map[string]bool {
	place := make(map[string]int, len(old))
	for i, id := range old {
		place[id] = i
	}
	// The longest run that grows: best[i] is how long one that ends at now[i] is, from[i] what comes before it.
	best, from, last := make([]int, len(now)), make([]int, len(now)), -1
	for i, id := range now {
		at, there := place[id]
		if !there {
			continue
		}
		best[i], from[i] = 1, -1
		for j := range i {
			if before, there := place[now[j]]; there && before < at && best[j]+1 > best[i] {
				best[i], from[i] = best[j]+1, j
			}
		}
		if last < 0 || best[i] > best[last] {
			last = i
		}
	}
	stays := map[string]bool{}
	for ; last >= 0; last = from[last] {
		stays[now[last]] = true
	}
	return stays
}

// houseWatch is the watch for all who have a page of a house open.
func (a *app) houseWatch(house string) *sharedWatch {
	rows := &rowCache{}
	return &sharedWatch{
		app: a, request: &arbev1.WatchHouseRequest{HouseId: house, Threads: pageOfThreads, Members: true},
		render: func(ctx context.Context, w *watched) (map[string]view, error) {
			f := layout{House: w.house, Current: "-", Next: w.rest} // what is current each page knows itself
			f.Threads = slices.SortedFunc(maps.Values(w.threads), arbe.CompareThreads)
			nameSpeakers(ctx, a.services, house, f.Threads)
			views, err := rows.views(ctx, f)
			if err != nil {
				return nil, err
			}
			views["names"], err = namesOf(ctx, w.people())
			return views, err
		},
	}
}

// rowCache has the HTML of rows, so that one that has not changed is not rendered again.
type rowCache struct {
	places, items map[listedThread]string
}

// views renders the places and the list of a house.
func (c *rowCache) views(ctx context.Context, f layout) (map[string]view, error) {
	had := *c
	c.places, c.items = map[listedThread]string{}, map[listedThread]string{}
	row := func(into, from map[listedThread]string, t listedThread, fresh func() templ.Component) (string, error) {
		if html, there := from[t]; there {
			into[t] = html
			return html, nil
		}
		text, err := rendered(ctx, fresh())
		into[t] = string(text)
		return string(text), err
	}
	digest := f.digest()
	places, list := &listing{id: "places", digest: digest}, &listing{id: "threads", digest: digest, singles: map[string]string{}}
	for _, part := range []struct {
		name    string
		threads []listedThread
	}{{"pinned", f.pinned()}, {"recent", f.recent()}} {
		p := section{after: "places-" + part.name, rows: map[string]string{}}
		l := section{within: "threads-" + part.name, rows: map[string]string{}}
		for _, t := range part.threads {
			html, err := row(c.places, had.places, t, func() templ.Component { return place(t, false) })
			if err != nil {
				return nil, err
			}
			p.ids = append(p.ids, "place-"+t.Id)
			p.rows["place-"+t.Id] = html
			if html, err = row(c.items, had.items, t, func() templ.Component { return threadItem(t) }); err != nil {
				return nil, err
			}
			l.ids = append(l.ids, "t-"+t.Id)
			l.rows["t-"+t.Id] = html
		}
		if len(part.threads) > 0 {
			places.shape += part.name + " "
			list.shape += part.name + " "
		}
		places.sections, list.sections = append(places.sections, p), append(list.sections, l)
	}
	if f.Next != "" {
		list.shape += "more"
		more, err := rendered(ctx, moreThreads(f))
		if err != nil {
			return nil, err
		}
		list.singles["more-threads"] = string(more)
	}
	for l, whole := range map[*listing]templ.Component{places: placesList(f), list: threadList(f)} {
		html, err := rendered(ctx, whole)
		if err != nil {
			return nil, err
		}
		l.html = strings.TrimSpace(string(html))
	}
	return map[string]view{"house": places, "list": list}, nil
}
