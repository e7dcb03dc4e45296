package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
)

// headerRenewed is the header with a token that replaces the request's token.
const headerRenewed = "Arbe-Stream-Token"

// errOver is the door's answer when the run is over for this runner.
var errOver = errors.New("the run is over")

// refused is a final refusal of the door. Repeating the request does not help.
type refused struct {
	status int
	said   string
}

func (r refused) Error() string { return fmt.Sprintf("the door answered %d: %s", r.status, r.said) }

// door is the thread's stream over HTTP.
type door struct {
	url    string
	client *http.Client

	mu    sync.Mutex
	token string
	// tokens are all tokens that this run has had. Its posts must not contain any of them.
	tokens [][]byte
}

func newDoor(url, token string) *door {
	d := &door{url: url, client: &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment,
		DialContext: (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext, TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 4, IdleConnTimeout: 90 * time.Second}}}
	d.renew(token)
	return d
}

func (d *door) renew(token string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if token == "" || token == d.token || len(token) > 16<<10 {
		return
	}
	d.token = token
	if d.tokens = append(d.tokens, []byte(token)); len(d.tokens) > 50 { // the oldest have long expired
		d.tokens = d.tokens[1:]
	}
}

// current returns the token to use.
func (d *door) current() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.token
}

// redact returns a text without the tokens.
func (d *door) redact(text []byte) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, token := range d.tokens {
		if bytes.Contains(text, token) {
			text = bytes.ReplaceAll(text, token, bytes.Repeat([]byte("x"), len(token)))
		}
	}
	return text
}

// do sends a request, and returns the response if it succeeds. The error is errOver, a refused, or one that allows a
// retry.
func (d *door) do(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", "Bearer "+d.current())
	answer, err := d.client.Do(r)
	if err != nil {
		return nil, err
	}
	d.renew(answer.Header.Get(headerRenewed))
	if answer.StatusCode < 300 {
		return answer, nil
	}
	said, _ := io.ReadAll(io.LimitReader(answer.Body, 2<<10))
	answer.Body.Close()
	switch status := answer.StatusCode; {
	case status == 401 || status == 403 || status == 404 || status == 410:
		return nil, fmt.Errorf("%w: the door answered %d: %s", errOver, status, entry.OneLine(string(said), 300))
	case status >= 400 && status < 500 && status != 408 && status != 409 && status != 425 && status != 429:
		return nil, refused{status, entry.OneLine(string(said), 300)}
	default:
		return nil, fmt.Errorf("the door answered %d: %s", status, entry.OneLine(string(said), 300))
	}
}

// post posts records. Each is the JSON of one entry.
func (d *door) post(ctx context.Context, records [][]byte) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	body := append([]byte{'['}, bytes.Join(records, []byte{','})...)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url, bytes.NewReader(append(body, ']')))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := d.do(r)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10)) // so that the connection can be reused
	return answer.Body.Close()
}

// keepWhole sends the full text of a tool's result whose entry has only a part. It fails if that takes longer than within.
func (d *door) keepWhole(ctx context.Context, id string, text io.Reader, size int64, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url+"?"+url.Values{"whole": {id}}.Encode(), io.NopCloser(text))
	if err != nil {
		return err
	}
	r.ContentLength = size
	r.Header.Set("Content-Type", "text/plain; charset=utf-8")
	answer, err := d.do(r)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// page is a part of the thread's log.
type page struct {
	entries []entry.Entry
	// next is the offset at which to continue. end means that the log ends there.
	next string
	end  bool
}

// maxPage limits how much of a response is read, in bytes.
const maxPage = 64 << 20

// read returns the entries from an offset on. With wait, it waits some time for the first one.
func (d *door) read(ctx context.Context, offset string, wait bool) (p page, err error) {
	limit := 60 * time.Second
	query := url.Values{"offset": {offset}}
	if wait {
		query.Set("live", "long-poll")
		limit = 120 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+"?"+query.Encode(), nil)
	if err != nil {
		return p, err
	}
	r.Header.Set("Accept", "application/x-ndjson")
	answer, err := d.do(r)
	if err != nil {
		return p, err
	}
	defer answer.Body.Close()
	if p.next = answer.Header.Get("Stream-Next-Offset"); p.next == "" {
		return p, errors.New("the door's answer has no Stream-Next-Offset")
	}
	p.end = answer.Header.Get("Stream-Up-To-Date") == "true" || answer.StatusCode == http.StatusNoContent || p.next == offset
	p.entries, err = decodeLines(io.LimitReader(answer.Body, maxPage))
	return p, err
}

// decodeLines decodes a thread's entries in the door's format.
func decodeLines(r io.Reader) (entries []entry.Entry, err error) {
	for from := json.NewDecoder(r); ; {
		var line struct {
			Seq      int64           `json:"seq"`
			ID       string          `json:"id"`
			Type     string          `json:"type"`
			AuthorID string          `json:"authorId"`
			Payload  json.RawMessage `json:"payload"`
			TS       time.Time       `json:"ts"`
		}
		if err := from.Decode(&line); errors.Is(err, io.EOF) {
			return entries, nil
		} else if err != nil {
			return nil, fmt.Errorf("the door's answer is not entries: %w", err)
		}
		entries = append(entries, entry.Entry{Seq: line.Seq, ID: line.ID, Type: line.Type, Author: line.AuthorID, Payload: line.Payload, Time: line.TS})
	}
}

// record returns the JSON of one entry to post. at is its creation time.
func (d *door) record(id, author string, at time.Time, kind string, payload any) ([]byte, error) {
	text, err := json.Marshal(payload)
	if err != nil {
		return nil, err
	}
	fields := append([]byte(`{"type":"`+kind+`",`), bytes.TrimSpace(text)[1:]...)
	if bytes.Equal(bytes.TrimSpace(text), []byte("{}")) {
		fields = []byte(`{"type":"` + kind + `"}`)
	}
	return json.Marshal(struct {
		ID       string          `json:"id"`
		TS       time.Time       `json:"ts"`
		AuthorID string          `json:"authorId,omitempty"`
		Payload  json.RawMessage `json:"payload"`
	}{id, at.UTC(), author, d.redact(withoutNUL(fields))})
}

// withoutNUL replaces each escaped NUL in JSON, because Postgres text cannot contain NUL.
func withoutNUL(text []byte) []byte {
	const nul = `\u0000`
	if !bytes.Contains(text, []byte(nul)) {
		return text
	}
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] != '\\' || i+1 == len(text):
			out = append(out, text[i])
		case bytes.HasPrefix(text[i:], []byte(nul)):
			out = append(out, `\ufffd`...)
			i += len(nul) - 1
		default: // an escaped character, possibly a backslash
			out = append(out, text[i], text[i+1])
			i++
		}
	}
	return out
}
