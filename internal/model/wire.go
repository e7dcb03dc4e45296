package model

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"cmp"

	"github.com/arbe-dev/arbe/internal/lazyregexp"
	"github.com/arbe-dev/arbe/internal/outbound"
)

// maxCost is the most that a call costs, in US dollars, whatever the provider reports.
const maxCost = 10_000

// maxErrorBody is how much is read of a body that is not an event stream.
const maxErrorBody = 64 << 10

// errIdle and errSlow end a call whose provider is silent, or whose answer grows too slowly.
var (
	errIdle = errors.New("the provider was silent")
	errSlow = errors.New("the answer grows too slowly")
)

// errReported ends a call whose provider reports a failure within the answer.
var errReported = errors.New("the provider reports an error")

// openTransport connects to the operator's addresses: to everything but metadata services.
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

// publicTransport connects to the public internet. The client limits the time of a response.
func publicTransport() *http.Transport {
	t := outbound.Transport(nil)
	t.ResponseHeaderTimeout = 0
	return bounded(t)
}

// bounded limits what a transport accepts from a server. It refuses compressed bodies, because they could have any
// size.
func bounded(t *http.Transport) *http.Transport {
	t.DisableCompression = true
	t.MaxResponseHeaderBytes = 64 << 10
	return t
}

// wire is the connection of one call. It adds the key, limits silence, and reads what all dialects have: usage, errors,
// refusals and the id. A call uses it from one goroutine.
type wire struct {
	base     http.RoundTripper
	endpoint Endpoint
	header   time.Duration
	idle     time.Duration
	patience allowance // in seconds
	cancel   context.CancelCauseFunc
	// size returns the size of the answer so far.
	size func() int
	// pace is [Request.Pace].
	pace func(n int) (end func())
	// slow reports that the timer of the body, if it fires, means a slow answer and not a silent provider.
	slow atomic.Bool

	status      int // 0 until there is a response
	contentType string
	retryAfter  time.Duration
	body        *tapped

	data    bool      // whether an event came
	said    wireError // an error in the stream, or of a refused request
	page    string    // the text of a refusal that is not a provider's error, such as a proxy's page
	usage   Usage
	cost    float64 // in dollars, if the provider reports it
	hasCost bool
	id      string
	refusal strings.Builder
}

// do sends a request with the endpoint's key. A redirect is not followed, because the key is only for this address.
func (w *wire) do(r *http.Request) (*http.Response, error) {
	r.Header.Set("User-Agent", "arbe")
	if w.endpoint.Dialect == Messages {
		r.Header.Set("Anthropic-Version", "2023-06-01")
	}
	w.unlock(r)
	client := &http.Client{Transport: w, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return client.Do(r)
}

// unlock puts the endpoint's key into a request.
func (w *wire) unlock(r *http.Request) {
	key := w.endpoint.Key
	if key == "" {
		return
	}
	switch w.endpoint.Dialect {
	case Messages:
		r.Header.Set("X-Api-Key", key)
	case Gemini:
		r.Header.Set("X-Goog-Api-Key", key)
	default:
		r.Header.Set("Authorization", "Bearer "+key)
	}
}

// RoundTrip sends one request that do prepared.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := w.send(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= 400 || w.isJSON() && r.Method == http.MethodPost {
		// Some servers refuse a request with the status of a success. Answers are streamed, so a JSON body is a
		// refusal.
		text := w.refused()
		response.Body = struct {
			io.Reader
			io.Closer
		}{bytes.NewReader(text), w.body}
	}
	return response, nil
}

// send sends a request, and returns the response, whose body is w.body.
func (w *wire) send(r *http.Request) (*http.Response, error) {
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
	if coding := response.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		w.close()
		return nil, outOfBounds("it sends a compressed response, which was not asked for")
	}
	return response, nil
}

// refused reads and records the body of a refusal.
func (w *wire) refused() []byte {
	text, _ := io.ReadAll(io.LimitReader(w.body, maxErrorBody)) //nolint:errcheck // a part of the body will do
	if w.said = readError(text); w.said.empty() {
		w.page = pageText(text)
	}
	return text
}

func (w *wire) isJSON() bool { return strings.HasPrefix(w.contentType, "application/json") }

// ask sends a request for an answer, and returns the events of the answer.
func (w *wire) ask(r *http.Request) (*events, error) {
	response, err := w.do(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= 300 || w.isJSON() {
		return nil, fmt.Errorf("status %d", response.StatusCode)
	}
	answer := newEvents(w.body, w.endpoint.Dialect, w.size)
	if w.pace != nil {
		answer.pace = w.pace
	}
	return answer, nil
}

// read reads an answer until it ends.
func (w *wire) read(answer *events, from reader) (finish, error) {
	for {
		e, err := answer.next()
		if err == io.EOF {
			if ends := from.end(); ends != "" {
				return ends, nil
			}
			return "", io.ErrUnexpectedEOF
		} else if err != nil {
			return "", err
		}
		if w.note(e.data); e.failed || !w.said.empty() {
			return "", errReported
		}
		if ends, err := from.read(e.data); ends != "" || err != nil {
			return ends, err
		}
	}
}

// close closes the connection, or releases it for reuse if its response is over.
func (w *wire) close() {
	if w.body != nil {
		w.body.Close() //nolint:errcheck // nothing more is needed from it
	}
}

// retryAfter returns how long a provider asks us to wait; 0 if it does not.
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

// tapped is the body of a response. It ends the call if nothing arrives for too long, or if the answer grows too
// slowly.
type tapped struct {
	io.ReadCloser
	wire  *wire
	timer *time.Timer
	grown int
	// patience is how many seconds the answer may continue without growing. Each byte of growth adds to it.
	patience allowance
	close    sync.Once
}

// Read reads from the provider. The time between two calls of Read does not count, because then the caller is slow and
// not the provider.
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

// Close closes the connection, or releases it for reuse if its response is over.
func (t *tapped) Close() (err error) {
	t.close.Do(func() {
		t.timer.Stop()
		err = t.ReadCloser.Close()
	})
	return err
}

// note records the parts of an event that do not belong to the answer.
func (w *wire) note(data []byte) {
	w.data = true
	has := func(word string) bool { return bytes.Contains(data, []byte(word)) }
	// Most events are pieces of text, which the dialect decodes.
	if has(`"usage`) && !has(`"usage":null`) || has(`"error`) || has("refusal") || w.id == "" && has(`"id"`) {
		w.aside(data)
	}
}

// aside has the fields, in all four dialects, that matter here.
type aside struct {
	Type     string          `json:"type"`
	ID       string          `json:"id"`
	Code     json.RawMessage `json:"code"`
	Message  json.RawMessage `json:"message"` // messages: an object; an error of responses: a string
	Delta    json.RawMessage `json:"delta"`
	Error    *wireError      `json:"error"`
	Usage    *wireUsage      `json:"usage"`
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

// wireUsage has the field names of all dialects.
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

// wireError is a provider's error. Codes are strings, or numbers at OpenRouter and Google.
type wireError struct {
	Type    string          `json:"type"`
	Code    json.RawMessage `json:"code"`
	Status  string          `json:"status"`
	Message string          `json:"message"`
}

// UnmarshalJSON also reads a string, as the message.
func (e *wireError) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return json.Unmarshal(data, &e.Message)
	}
	type plain wireError
	return json.Unmarshal(data, (*plain)(e))
}

func (e wireError) empty() bool {
	return e.Type == "" && len(e.Code) == 0 && e.Status == "" && e.Message == ""
}

func (e wireError) code() string { return strings.Trim(string(e.Code), `"`) }

// readError reads the body of a refused request.
func readError(body []byte) wireError {
	var one struct {
		Error   wireError `json:"error"`
		Message string    `json:"message"`
		Detail  string    `json:"detail"`
	}
	var several []json.RawMessage // sometimes Google's
	if json.Unmarshal(body, &several) == nil && len(several) > 0 {
		body = several[0]
	}
	if passable(json.Unmarshal(body, &one)) != nil {
		return wireError{}
	}
	if !one.Error.empty() {
		return one.Error
	}
	if one.Message == "" {
		one.Message = one.Detail
	}
	return wireError{Message: one.Message}
}

// notText matches the invisible parts of a web page, and its tags.
var notText = lazyregexp.New(`(?is)<(script|style|head)\b.*?(</(script|style|head)\s*>|$)|<!--.*?(-->|$)|<[^>]*(>|$)`)

// pageText returns the text of a web page, or plain text unchanged. It is untrusted.
func pageText(page []byte) string {
	return strings.Join(strings.Fields(html.UnescapeString(notText.ReplaceAllString(strings.ToValidUTF8(string(page), "\uFFFD"), " "))), " ")
}

func (w *wire) aside(data []byte) {
	var e aside
	if passable(json.Unmarshal(data, &e)) != nil {
		return
	}
	switch {
	case e.Error != nil && !e.Error.empty():
		w.said = *e.Error
	case e.Response != nil && e.Response.Error != nil && !e.Response.Error.empty():
		w.said = *e.Response.Error
	case e.Type == "error":
		w.said = wireError{Code: e.Code}
		json.Unmarshal(e.Message, &w.said.Message) //nolint:errcheck // then there is no message
	}
	switch e.Type {
	case "message_start":
		var message struct {
			ID    string     `json:"id"`
			Usage *wireUsage `json:"usage"`
		}
		if passable(json.Unmarshal(e.Message, &message)) == nil {
			w.id = message.ID
			w.use(message.Usage)
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

// refuse adds to a refusal. Refusals are short, so it stops at a limit.
func (w *wire) refuse(text string) {
	if w.refusal.Len() < 16<<10 {
		w.refusal.WriteString(text)
	}
}

// clamp keeps a server's number in a range in which prices cannot overflow.
func clamp(tokens int64) int64 { return min(max(tokens, 0), 1e9) }

// use records the usage so far. Later numbers replace earlier ones; a missing number changes nothing.
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

// price returns the cost of a call: the provider's figure, or else the price of its tokens. known is false if neither
// is known.
func (w *wire) price(model string, u Usage) (cost Money, known bool) {
	if w.hasCost {
		return Money(w.cost * float64(Dollar)), true
	}
	if price := Lookup(w.endpoint.Provider, model).Price; price != nil {
		return price.Of(u), true
	}
	return 0, false
}

// finish is how an answer ended; empty if it has not ended.
type finish string

const (
	endPlain  finish = "plain" // the model is done, or waits for results
	endLength finish = "length"
	endFilter finish = "filter" // the model, or a filter of its provider, refused
	endError  finish = "error"
)

// reader builds an answer from the events of a dialect. Any field of an event may be missing.
type reader interface {
	// read handles an event, and returns how it ended the answer; empty if more may follow.
	read(data []byte) (finish, error)
	// end returns how the answer ended after the last event; empty if it was cut.
	end() finish
}

// Client calls models. The zero Client has the defaults. Its fields must not change after its first call; its methods
// may be called concurrently, and share connections.
type Client struct {
	// HeaderTimeout is how long a provider may take to begin its response, and IdleTimeout how long it may be silent
	// within it. Default to 3 and 2 minutes. How long an answer takes altogether is limited by the caller's context.
	HeaderTimeout time.Duration
	IdleTimeout   time.Duration
	// MinRate is how fast an answer must grow, in bytes per second, including thinking. Defaults to 16, or to 2 at
	// addresses that the operator named, which may be small machines. An answer may be slower for SlowTime in total,
	// which defaults to 5 minutes and recovers while the answer is faster.
	MinRate  float64
	SlowTime time.Duration
	// MaxAnswer is the largest size of an answer, in bytes of its stored JSON, with calls and signatures. The answer
	// then ends as if it had reached its limit of tokens. Defaults to 2 MiB.
	MaxAnswer int
	// Observe is called when a call of [Client.Stream] or [Client.Forward] has ended. It must be quick. Defaults to nil.
	Observe func(Call)

	once   sync.Once
	public http.RoundTripper
	open   http.RoundTripper
}

// wire returns the connection of a new call.
func (c *Client) wire(e Endpoint, cancel context.CancelCauseFunc) *wire {
	c.once.Do(func() { c.public, c.open = publicTransport(), openTransport() })
	w := &wire{base: c.public, endpoint: e, cancel: cancel, header: c.Patience(false), idle: c.Patience(true),
		size: func() int { return 0 }}
	rate := cmp.Or(c.MinRate, 16)
	if e.Trusted {
		w.base, rate = c.open, cmp.Or(c.MinRate, 2)
	}
	w.patience = allow(cmp.Or(c.SlowTime, 5*time.Minute).Seconds(), 1/rate)
	return w
}

// object is a JSON object with varying fields.
type object map[string]any

// marshal writes JSON without escaping < and &.
func marshal(v any) ([]byte, error) {
	var text bytes.Buffer
	to := json.NewEncoder(&text)
	to.SetEscapeHTML(false)
	err := to.Encode(v)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), err
}

// decode reads an event. It skips fields with other types than the dialect's.
func decode(data []byte, into any) error { return passable(json.Unmarshal(data, into)) }

// Patience returns how long a provider may be silent before its call ends: before its response, or within it.
func (c *Client) Patience(begun bool) time.Duration {
	if begun {
		return cmp.Or(c.IdleTimeout, 2*time.Minute)
	}
	return cmp.Or(c.HeaderTimeout, 3*time.Minute)
}
