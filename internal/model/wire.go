package model

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"html"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/arbe-dev/arbe/internal/outbound"
)

// placeholder is the key that the providers' libraries are given. The real one is put in its place on the wire, so that
// no library can keep, dump or print it. It must not be empty: without a key the libraries look for one in the
// environment, in files and in cloud metadata.
const placeholder = "key-is-set-on-the-wire"

// maxCost is the most that a call costs, in US dollars, whatever the provider reports.
const maxCost = 10_000

// kept are the headers of a library's request that are sent. All others stay behind: among them are keys and accounts
// that the libraries find in the environment.
var kept = []string{"Accept", "Content-Type", "Anthropic-Version", "Anthropic-Beta"}

// maxErrorBody is how much is read of a body that is no stream of events.
const maxErrorBody = 64 << 10

// errIdle and errSlow are why a call ends whose provider is silent, or whose answer grows too slowly.
var (
	errIdle = errors.New("the provider was silent")
	errSlow = errors.New("the answer grows too slowly")
)

// openTransport connects to what the operator named: to everything but metadata services.
func openTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 30 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err == nil && isMetadata(at.Addr()) {
			err = &outbound.RefusedError{Address: address}
		}
		return err
	}}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = dialer.DialContext
	return bounded(t)
}

// publicTransport connects to the public internet. How long a response may take is the client's to say.
func publicTransport() *http.Transport {
	t := outbound.Transport(nil)
	t.ResponseHeaderTimeout = 0
	return bounded(t)
}

// bounded makes a transport accept no more of a server than it may send: a compressed body would be as large as it likes.
func bounded(t *http.Transport) *http.Transport {
	t.DisableCompression = true
	t.MaxResponseHeaderBytes = 64 << 10
	return t
}

// wire is the connection of one call: it puts the key in, limits silence, and notes what passes. fantasy loses some of
// that: the usage of an answer that is cut, refusals, the delay that a provider asks for. A call uses it from one
// goroutine.
type wire struct {
	base     http.RoundTripper
	endpoint Endpoint
	header   time.Duration
	idle     time.Duration
	patience allowance // in seconds
	cancel   context.CancelCauseFunc
	// size is how large the answer is so far.
	size func() int
	// pace is [Request.Pace].
	pace func(n int) (end func())
	// sealed is what the library does not send.
	sealed *sealedThoughts
	// slow says that the timer of the body, when it fires, means a slow answer and not a silent provider.
	slow atomic.Bool

	status      int // 0 until there is a response
	contentType string
	retryAfter  time.Duration
	body        *tapped

	data    bool      // whether an event came
	bad     error     // what is wrong with what came; nil if nothing is
	said    wireError // an error in the stream, or the one of a refused request
	page    string    // what a refusal says that is no error of a provider: the page of a proxy
	usage   Usage
	cost    float64 // in dollars, if the provider says it
	hasCost bool
	id      string
	refusal strings.Builder
	// reasoned is the last item of reasoning that was complete.
	reasoned reasoningItem
}

// proof returns what proves the thinking of an item of responses, when that is complete; empty if nothing does.
func (w *wire) proof(id string) string {
	if w.reasoned.ID != id {
		return ""
	}
	return w.reasoned.signature()
}

// RoundTrip sends one request.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	header := http.Header{"User-Agent": {"arbe"}}
	for _, name := range kept {
		if values := r.Header.Values(name); len(values) > 0 {
			header[name] = values
		}
	}
	if key := w.endpoint.Key; key != "" {
		switch w.endpoint.Dialect {
		case Messages:
			header.Set("X-Api-Key", key)
		case Gemini:
			header.Set("X-Goog-Api-Key", key)
		default:
			header.Set("Authorization", "Bearer "+key)
		}
	}
	r.Header = header
	base, err := url.Parse(w.endpoint.BaseURL)
	if err != nil {
		return nil, err
	}
	if w.endpoint.Provider == OpenRouter { // whose base URL fantasy does not let us set
		if r.URL, err = url.Parse(w.endpoint.BaseURL + strings.TrimPrefix(r.URL.String(), openRouterURL)); err != nil {
			return nil, err
		}
		r.Host = ""
	}
	if r.URL.Host != base.Host || r.URL.Scheme != base.Scheme {
		return nil, &outbound.RefusedError{Address: r.URL.Host} // a library went elsewhere: the key must not
	}
	if err := w.sealed.unseal(r); err != nil {
		return nil, err
	}
	timer := time.AfterFunc(w.header, func() {
		if w.slow.Load() {
			w.cancel(errSlow)
		}
		w.cancel(errIdle)
	})
	response, err := w.base.RoundTrip(r)
	timer.Stop()
	if err != nil {
		return nil, err
	}
	w.status, w.contentType = response.StatusCode, response.Header.Get("Content-Type")
	w.retryAfter = retryAfter(response.Header, time.Now())
	w.body = &tapped{ReadCloser: response.Body, wire: w, timer: timer, patience: w.patience}
	response.Body = w.body
	body := func(r io.Reader) {
		response.Body = struct {
			io.Reader
			io.Closer
		}{r, w.body}
	}
	switch isJSON := strings.HasPrefix(w.contentType, "application/json"); {
	case response.Header.Get("Content-Encoding") != "" && response.Header.Get("Content-Encoding") != "identity":
		w.bad = outOfBounds("it sends a compressed response, which was not asked for")
		return nil, w.bad
	case response.StatusCode >= 400 || isJSON && r.Method == http.MethodPost:
		// Some servers refuse a request with the status of a success. An answer is never JSON: it is streamed.
		text, _ := io.ReadAll(io.LimitReader(w.body, maxErrorBody)) //nolint:errcheck // what came is what can be said
		if w.said = readError(text); w.said.empty() {
			w.page = pageText(text)
		}
		body(bytes.NewReader(text))
	case r.Method == http.MethodPost:
		stream := newEvents(w.body, w.endpoint.Dialect, w.size, w.note)
		if w.pace != nil {
			stream.pace = w.pace
		}
		body(&checked{stream, w})
	}
	return response, nil
}

// retryAfter reads how long a provider wants us to wait; 0 if it does not say.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 && ms < 1e10 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds > 0 && seconds < 1e7 {
		return time.Duration(seconds * float64(time.Second))
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// checked notes what was wrong with the events of a response.
type checked struct {
	*events
	wire *wire
}

func (c *checked) Read(p []byte) (int, error) {
	n, err := c.events.Read(p)
	if bad, isBad := errors.AsType[*boundsError](err); isBad {
		c.wire.bad = bad
	}
	return n, err
}

// tapped is the body of a response. It ends the call if nothing comes for too long, or if the answer grows too slowly.
type tapped struct {
	io.ReadCloser
	wire  *wire
	timer *time.Timer
	grown int
	// patience is how many seconds the answer may go on as it does: each byte by which it grows adds some.
	patience allowance
	close    sync.Once
}

// Read reads from the provider. The time between two calls of Read does not count, because then the caller is slow, not the
// provider.
func (t *tapped) Read(p []byte) (int, error) {
	if grown := t.wire.size(); grown > t.grown {
		t.patience.earn(grown - t.grown)
		t.grown = grown
	}
	left := time.Duration(t.patience.left * float64(time.Second))
	t.wire.slow.Store(left < t.wire.idle)
	t.timer.Reset(max(min(left, t.wire.idle), time.Millisecond))
	began := time.Now()
	n, err := t.ReadCloser.Read(p)
	t.timer.Stop()
	if !t.patience.spend(time.Since(began).Seconds()) && err == nil {
		t.wire.cancel(errSlow)
		err = errSlow
	}
	return n, err
}

// Close closes the connection, or gives it back if its response is over.
func (t *tapped) Close() (err error) {
	t.close.Do(func() {
		t.timer.Stop()
		err = t.ReadCloser.Close()
	})
	return err
}

// note notes what an event says that the library does not.
func (w *wire) note(data []byte) {
	w.data = true
	has := func(word string) bool { return bytes.Contains(data, []byte(word)) }
	// Most events are pieces of text, and the library decodes them already.
	if has(`"usage`) && !has(`"usage":null`) || has(`"error`) || has("refusal") || has("encrypted_content") || w.id == "" && has(`"id"`) {
		w.event(data)
	}
}

// event is what the four dialects have in the events that matter here.
type event struct {
	Type     string          `json:"type"`
	ID       string          `json:"id"`
	Code     json.RawMessage `json:"code"`
	Message  json.RawMessage `json:"message"` // messages: an object; an error of responses: a string
	Delta    json.RawMessage `json:"delta"`
	Error    *wireError      `json:"error"`
	Usage    *wireUsage      `json:"usage"`
	Item     json.RawMessage `json:"item"` // of responses
	Response *struct {
		ID    string     `json:"id"`
		Error *wireError `json:"error"`
		Usage *wireUsage `json:"usage"`
	} `json:"response"`
	Choices []struct {
		Delta struct {
			Refusal string `json:"refusal"`
		} `json:"delta"`
	} `json:"choices"`
	ResponseID    string `json:"responseId"`
	UsageMetadata *struct {
		Prompt     int64 `json:"promptTokenCount"`
		ToolPrompt int64 `json:"toolUsePromptTokenCount"`
		Cached     int64 `json:"cachedContentTokenCount"`
		Candidates int64 `json:"candidatesTokenCount"`
		Thoughts   int64 `json:"thoughtsTokenCount"`
	} `json:"usageMetadata"`
}

// wireUsage has the names of all dialects.
type wireUsage struct {
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	Prompt     *int64 `json:"prompt_tokens"`
	Completion *int64 `json:"completion_tokens"`
	PromptIn   *struct {
		Cached     int64 `json:"cached_tokens"`
		CacheWrite int64 `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	InputIn *struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	Cost *float64 `json:"cost"`
}

// wireError is a provider's error. Codes are texts, or numbers at OpenRouter and Google.
type wireError struct {
	Type    string          `json:"type"`
	Code    json.RawMessage `json:"code"`
	Status  string          `json:"status"`
	Message string          `json:"message"`
}

func (e wireError) empty() bool {
	return e.Type == "" && len(e.Code) == 0 && e.Status == "" && e.Message == ""
}

func (e wireError) code() string { return strings.Trim(string(e.Code), `"`) }

// readError reads the body of a refused request.
func readError(body []byte) wireError {
	var one struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  string          `json:"detail"`
	}
	if json.Unmarshal(body, &one) != nil {
		var several []json.RawMessage // Google's, at times
		if json.Unmarshal(body, &several) == nil && len(several) > 0 && !bytes.HasPrefix(bytes.TrimSpace(several[0]), []byte("[")) {
			return readError(several[0])
		}
		return wireError{}
	}
	var e wireError
	if json.Unmarshal(one.Error, &e) == nil && !e.empty() {
		return e
	}
	var text string
	if json.Unmarshal(one.Error, &text) == nil && text != "" {
		return wireError{Message: text}
	}
	if one.Message == "" {
		one.Message = one.Detail
	}
	return wireError{Message: one.Message}
}

// notText are the parts of a web page that nobody reads, and its tags.
var notText = regexp.MustCompile(`(?is)<(script|style|head)\b.*?(</(script|style|head)\s*>|$)|<!--.*?(-->|$)|<[^>]*(>|$)`)

// pageText returns what a web page says, or a text that is not of a web page. It is untrusted.
func pageText(page []byte) string {
	return strings.Join(strings.Fields(html.UnescapeString(notText.ReplaceAllString(strings.ToValidUTF8(string(page), "\uFFFD"), " "))), " ")
}

func (w *wire) event(data []byte) {
	var e event
	if json.Unmarshal(data, &e) != nil {
		return // the library says so
	}
	switch {
	case e.Error != nil && !e.Error.empty():
		w.said = *e.Error
	case e.Response != nil && e.Response.Error != nil && !e.Response.Error.empty():
		w.said = *e.Response.Error
	case e.Type == "error":
		w.said = wireError{Code: e.Code}
		json.Unmarshal(e.Message, &w.said.Message) //nolint:errcheck // no text then
	}
	switch e.Type {
	case "message_start":
		var message struct {
			ID    string     `json:"id"`
			Usage *wireUsage `json:"usage"`
		}
		if json.Unmarshal(e.Message, &message) == nil {
			w.id = message.ID
			w.use(message.Usage)
		}
	case "response.output_item.done":
		var item reasoningItem
		if json.Unmarshal(e.Item, &item) == nil && item.Type == "reasoning" { // the one with which it begins is not complete
			w.reasoned = item
		}
	case "response.refusal.delta":
		var text string
		if json.Unmarshal(e.Delta, &text) == nil {
			w.refuse(text)
		}
	}
	for _, choice := range e.Choices {
		w.refuse(choice.Delta.Refusal)
	}
	if w.id == "" && w.endpoint.Dialect == Chat {
		w.id = e.ID
	}
	if e.ResponseID != "" {
		w.id = e.ResponseID
	}
	if e.Response != nil {
		w.id = e.Response.ID
		w.use(e.Response.Usage)
	}
	w.use(e.Usage)
	if u := e.UsageMetadata; u != nil {
		// Each chunk has the numbers of all chunks so far.
		w.usage = Usage{Input: clamp(clamp(u.Prompt) + clamp(u.ToolPrompt) - clamp(u.Cached)), CacheRead: clamp(u.Cached),
			Output: clamp(clamp(u.Candidates) + clamp(u.Thoughts))}
	}
}

// refuse notes a part of a refusal. It is short; what makes it long is not one.
func (w *wire) refuse(text string) {
	if w.refusal.Len() < 16<<10 {
		w.refusal.WriteString(text)
	}
}

// clamp keeps a server's number in a range in which prices cannot overflow.
func clamp(tokens int64) int64 { return min(max(tokens, 0), 1e9) }

// use notes what was used so far. Later numbers replace earlier ones, and a missing one replaces none.
func (w *wire) use(u *wireUsage) {
	if u == nil {
		return
	}
	set := func(to *int64, from *int64) {
		if from != nil {
			*to = clamp(*from)
		}
	}
	set(&w.usage.CacheWrite, u.CacheWrite)
	set(&w.usage.CacheRead, u.CacheRead)
	if u.PromptIn != nil {
		w.usage.CacheRead, w.usage.CacheWrite = clamp(u.PromptIn.Cached), clamp(u.PromptIn.CacheWrite)
	}
	if u.InputIn != nil {
		w.usage.CacheRead = clamp(u.InputIn.Cached)
	}
	set(&w.usage.Output, u.Output)
	set(&w.usage.Output, u.Completion)
	set(&w.usage.Input, u.Input)
	set(&w.usage.Input, u.Prompt)
	if u.Prompt != nil || u.Input != nil && w.endpoint.Dialect == Responses { // OpenAI's input includes the caches
		w.usage.Input = max(w.usage.Input-w.usage.CacheRead-w.usage.CacheWrite, 0)
	}
	if u.Cost != nil && w.endpoint.Provider == OpenRouter && *u.Cost >= 0 {
		w.cost, w.hasCost = min(*u.Cost, maxCost), true
	}
}
