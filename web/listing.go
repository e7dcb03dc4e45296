package web

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/a-h/templ"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// listing is a list of threads as HTML: the rows and their surroundings.
type listing struct {
	id, digest, html string
	// shape identifies the parts around the rows. singles holds those that change independently, by id.
	shape    string
	singles  map[string]string
	sections []section
}

// section is a run of rows.
type section struct {
	// after is the element before the first row; if it is empty, within is the element that contains the rows.
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

// since returns the patches that turn the rows of old into those of s. They first remove a row that moves, so that applying
// them twice duplicates nothing.
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

// unmoved returns the largest set of ids that are in both lists in the same order, so that as few rows as possible are sent again.
func unmoved(old, now []string) map[string]bool {
	place := make(map[string]int, len(old))
	for i, id := range old {
		place[id] = i
	}
	// The longest increasing subsequence: best[i] is the length of the longest one that ends at now[i], and from[i] is the
	// index of its previous element.
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

// houseWatch returns the watch for everyone who has a page of a house open.
func (a *app) houseWatch(house string) *sharedWatch {
	rows := &rowCache{}
	return &sharedWatch{
		houses: a.services.houses, log: a.log, request: &arbev1.WatchHouseRequest{HouseId: house, Threads: pageOfThreads, Members: true, Bots: true},
		render: func(ctx context.Context, w *watched) (map[string]view, error) {
			f := layout{House: w.house, Current: "-", Next: w.rest} // no current thread: each page marks its own
			f.Threads = slices.SortedFunc(maps.Values(w.threads), arbe.CompareThreads)
			if err := a.nameSpeakers(ctx, house, f.Threads); err != nil {
				return nil, err
			}
			views, err := rows.views(ctx, f)
			if err != nil {
				return nil, err
			}
			views["bots"] = botRows{house, w.sortedBots()}
			views["names"], err = namesOf(ctx, w.people())
			return views, err
		},
	}
}

// rowCache holds the HTML of rows, so that an unchanged row is not rendered again.
type rowCache struct {
	places, items map[listedThread]string
}

// views renders the sidebar and the list of a house.
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
			p.ids = append(p.ids, "place-"+t.key())
			p.rows["place-"+t.key()] = html
			if html, err = row(c.items, had.items, t, func() templ.Component { return threadItem(t) }); err != nil {
				return nil, err
			}
			l.ids = append(l.ids, "t-"+t.key())
			l.rows["t-"+t.key()] = html
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
