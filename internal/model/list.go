package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Limits of what a server lists. OpenRouter lists some 400 models in one megabyte.
const (
	maxListed     = 2000
	maxListedText = 64 << 10 // of the ids together
	maxListBody   = 4 << 20  // of one page
	maxListPages  = 5
)

// tryTime limits a trial of a key or a server.
const tryTime = 10 * time.Second

// Listing is an endpoint's list of its models.
type Listing struct {
	// Models are the ids, as in a [Ref], in the endpoint's order: at most 2,000, of 64 KiB together.
	Models []string
	// Complete reports whether these are all: a model that is not among them does not exist there. It is false if the
	// endpoint has more models than are kept, or lists patterns.
	Complete bool
}

// Trial is the result of trying an endpoint with its key.
type Trial struct {
	Listing
	// Accepted reports that the endpoint accepted the key. It is false if the endpoint has no key, or accepts every key
	// where it was asked.
	Accepted bool
	// Unlisted says why the models are not known; empty if they are.
	Unlisted string
}

// Models asks an endpoint which models it has. The request is free. The error is an [*Error], the context's, or a
// [fault.Error].
func (c *Client) Models(ctx context.Context, endpoint Endpoint) (list Listing, err error) {
	if err := endpoint.Check(); err != nil {
		return Listing{}, err
	}
	e := endpoint.withDefaults()
	g := listing{left: maxListedText, complete: true}
	path, page := firstPage(e.Dialect)
	for range maxListPages {
		at := e.root() + path
		if len(page) > 0 {
			at += "?" + page.Encode()
		}
		g.last, g.next, g.more = "", "", false
		if err := c.get(ctx, e, at, g.read); err != nil {
			return Listing{}, err
		}
		switch {
		case g.full:
		case e.Dialect == Messages && g.more && g.last != "":
			page.Set("after_id", g.last)
			continue
		case e.Dialect == Gemini && g.next != "":
			page.Set("pageToken", g.next)
			continue
		}
		return Listing{Models: g.models, Complete: g.complete && !g.full && len(g.models) > 0}, nil
	}
	return Listing{Models: g.models}, nil
}

// firstPage returns where the list of models begins.
func firstPage(d Dialect) (path string, page url.Values) {
	switch d {
	case Messages:
		return "/v1/models", url.Values{"limit": {"1000"}}
	case Gemini:
		return "/v1beta/models", url.Values{"pageSize": {"1000"}}
	}
	return "/models", url.Values{}
}

// Try asks an endpoint, for at most ten seconds, whether it accepts its key. The requests are free: Try lists the
// models. If the server lists them for everybody, or for nobody, Try also sends a request that the server must refuse.
// The errors are those of [Client.Models]. [BadKey] means that the key is wrong; any other error says nothing about the
// key.
func (c *Client) Try(ctx context.Context, endpoint Endpoint) (Trial, error) {
	if err := endpoint.Check(); err != nil {
		return Trial{}, err
	}
	e := endpoint.withDefaults()
	ctx, cancel := context.WithTimeoutCause(ctx, tryTime, errIdle)
	defer cancel()
	if e.Provider == OpenRouter { // its models are public
		if err := c.get(ctx, e, e.root()+"/key", drop); err != nil {
			return Trial{}, err
		}
	}
	list, err := c.Models(ctx, e)
	if err == nil {
		return c.tryListed(ctx, e, list)
	}
	failed, isError := errors.AsType[*Error](err)
	switch {
	case isError && e.Provider == OpenRouter:
		return Trial{Accepted: true, Unlisted: failed.Brief()}, nil
	case isError && failed.unlisted && failed.Kind == BadKey: // a key of OpenAI that may call models but not list them
		return Trial{Accepted: true, Unlisted: "the key may not list them"}, nil
	case isError && failed.unlisted && e.Provider == Compatible && e.Dialect != Gemini:
		if err := c.knock(ctx, e); err != nil {
			return Trial{}, err
		}
		return Trial{Unlisted: "it does not list them"}, nil
	}
	return Trial{}, err
}

// tryListed tries the key of an endpoint that listed its models.
func (c *Client) tryListed(ctx context.Context, e Endpoint, list Listing) (Trial, error) {
	if e.Provider == Compatible && e.Key != "" { // a server may list its models for everybody
		if err := c.knock(ctx, e); isKind(err, BadKey) {
			return Trial{}, err
		}
	}
	return Trial{Listing: list, Accepted: e.Key != ""}, nil
}

// isKind reports whether an error is an [*Error] of a kind.
func isKind(err error, k Kind) bool {
	failed, is := errors.AsType[*Error](err)
	return is && failed.Kind == k
}

// knock sends an empty request, which no server can answer. It returns nil if the server refuses it for being empty:
// the server then speaks the dialect and accepts the key.
func (c *Client) knock(ctx context.Context, e Endpoint) error {
	path := map[Dialect]string{Chat: "/chat/completions", Responses: "/responses", Messages: "/v1/messages"}[e.Dialect]
	if path == "" {
		return nil // only these have an address without a model
	}
	err := c.request(ctx, e, http.MethodPost, e.root()+path, strings.NewReader("{}"), drop)
	failed, is := errors.AsType[*Error](err)
	if !is {
		return err
	}
	switch {
	case failed.unlisted && failed.Status != http.StatusUnauthorized && failed.Status != http.StatusForbidden:
		return newError(Unreachable, e, "", "there is no "+string(e.Dialect)+" at this address", nil)
	case failed.Kind == BadKey, failed.Passing(), failed.Kind == Unreachable, failed.Kind == Unreadable:
		return failed
	}
	return nil
}

func drop(io.Reader) error { return nil }

// get requests an address of an endpoint with its key, and reads the answer.
func (c *Client) get(ctx context.Context, e Endpoint, at string, read func(io.Reader) error) error {
	return c.request(ctx, e, http.MethodGet, at, nil, read)
}

// request sends a request with the endpoint's key. read gets at most [maxListBody] bytes of the body of a success.
func (c *Client) request(ctx context.Context, e Endpoint, method, at string, body io.Reader, read func(io.Reader) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil) // closes the connection of a response that is not read to its end
	w := c.wire(e, cancel)
	r, err := http.NewRequestWithContext(ctx, method, at, body)
	if err != nil {
		return newError(Unreachable, e, "", "", err)
	}
	r.Header.Set("Accept", "application/json")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := w.do(r)
	if err == nil {
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %d", response.StatusCode)
		} else if err = read(io.LimitReader(response.Body, maxListBody)); err == nil {
			return nil
		} else if ctx.Err() == nil {
			return newError(Unreadable, e, "", "it sends no list of models", err)
		}
	}
	if stopped := ctx.Err(); stopped != nil && !ended(ctx) {
		return fmt.Errorf("calling %s: %w", e.Name, stopped)
	}
	failed := w.failure(ctx, "", err)
	failed.unlisted = failed.hidesList()
	return failed
}

// hidesList reports whether a server refuses only to list its models.
func (e *Error) hidesList() bool {
	switch e.Status {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	case http.StatusUnauthorized, http.StatusForbidden:
		return strings.Contains(strings.ToLower(e.Said), "missing scopes")
	}
	return false
}

// listing collects the pages of a list.
type listing struct {
	models   []string
	left     int
	complete bool
	full     bool

	last, next string
	more       bool
}

// read reads one page. The forms are {"data":[{"id":…}]}, Gemini's {"models":[{"name":…}]}, and a plain array. It reads
// each element separately, so that a list costs no more memory than the kept part.
func (l *listing) read(r io.Reader) error {
	d := json.NewDecoder(r)
	open, err := d.Token()
	if err != nil {
		return err
	}
	switch open {
	case json.Delim('['):
		return l.elements(d)
	case json.Delim('{'):
	default:
		return errors.New("it is not a list")
	}
	found := false
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		found = found || isList(name)
		if err := l.field(d, name); err != nil || l.full {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return err
	}
	if !found {
		return errors.New("it has no list")
	}
	return nil
}

// isList reports whether a field has the list.
func isList(name json.Token) bool { return name == "data" || name == "models" }

// field reads a field of a page.
func (l *listing) field(d *json.Decoder, name json.Token) error {
	if isList(name) {
		open, err := d.Token()
		if err != nil || open == nil { // null is an empty list
			return err
		}
		if open != json.Delim('[') {
			return errors.New("it is not a list")
		}
		return l.elements(d)
	}
	if into := map[any]any{"has_more": &l.more, "last_id": &l.last, "nextPageToken": &l.next}[name]; into != nil {
		return passable(d.Decode(into))
	}
	var skipped json.RawMessage
	return d.Decode(&skipped)
}

// elements reads an array after its bracket. It stops once the limits are reached.
func (l *listing) elements(d *json.Decoder) error {
	for d.More() {
		var one struct {
			ID      string   `json:"id"`
			Name    string   `json:"name"`
			Methods []string `json:"supportedGenerationMethods"`
		}
		if err := passable(d.Decode(&one)); err != nil {
			return err
		}
		if one.ID == "" {
			one.ID = strings.TrimPrefix(one.Name, "models/")
		}
		if strings.Contains(one.ID, "*") { // a gateway's pattern, such as anthropic/*
			l.complete = false
		}
		if !modelID.MatchString(one.ID) || len(one.Methods) > 0 && !slices.Contains(one.Methods, "generateContent") {
			continue
		}
		if len(l.models) == maxListed || len(one.ID) > l.left {
			l.full = true
			return nil
		}
		l.left -= len(one.ID)
		l.models = append(l.models, one.ID)
	}
	_, err := d.Token()
	return err
}

// has reports whether a list has a model. Providers accept more names than they list: an id without its date or with
// "latest" instead, an Ollama id without a tag, an OpenRouter id with a variant, and OpenRouter's own routers.
func (l Listing) has(e Endpoint, id string) bool {
	plain := func(id string) string {
		id = strings.ToLower(id)
		switch e.Provider {
		case OpenRouter:
			id, _, _ = strings.Cut(id, ":")
		case Anthropic, OpenAI, Google:
			id = dated.ReplaceAllString(id, "")
		default:
			id = strings.TrimSuffix(dated.ReplaceAllString(id, ""), ":latest")
		}
		return id
	}
	if e.Provider == OpenRouter && (strings.HasPrefix(id, "@") || strings.HasPrefix(id, "~") || strings.HasPrefix(id, "openrouter/")) ||
		e.Dialect == Gemini && strings.HasPrefix(id, "tunedModels/") || e.Shared && strings.HasPrefix(id, "ft:") {
		return true
	}
	want := plain(id)
	return slices.ContainsFunc(l.Models, func(listed string) bool { return plain(listed) == want })
}

// near returns the listed ids that are most similar to one, best first; the first ids of the list if none is similar.
func (l Listing) near(id string, most int) []string {
	type match struct {
		id   string
		cost int
	}
	id = strings.ToLower(id)
	var found []match
	for _, listed := range l.Models {
		if len(listed) > 100 || len(id) > 100 {
			continue
		}
		if cost := distance(id, strings.ToLower(listed)); cost <= max(3, len(id)/2) {
			found = append(found, match{listed, cost})
		}
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].cost < found[j].cost })
	var ids []string
	for _, m := range found[:min(len(found), most)] {
		ids = append(ids, m.id)
	}
	if ids == nil {
		ids = l.Models[:min(len(l.Models), most)]
	}
	return ids
}

// distance is the edit distance of a and b, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

// noSuch is the error of a model that a list does not have.
func (l Listing) noSuch(e Endpoint, id string) error {
	return fault.Newf(fault.Invalid, "use "+strings.Join(l.near(id, 5), ", ")+"; arbe model list shows all; to use it although it is not listed: --no-check, or skip_check",
		"model: %s has no model %q for this key", e.Title(), entry.Clip(id, 100))
}
