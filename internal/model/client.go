package model

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"charm.land/fantasy"
	"charm.land/fantasy/providers/anthropic"
	"charm.land/fantasy/providers/google"
	"charm.land/fantasy/providers/openai"
	"charm.land/fantasy/providers/openaicompat"
	"charm.land/fantasy/providers/openrouter"

	"github.com/arbe-dev/arbe/internal/entry"
)

// Client calls models. The zero Client has the defaults. Its fields must not change after its first call; its methods
// may be called concurrently, and share connections.
type Client struct {
	// HeaderTimeout is how long a provider may take to begin its response, and IdleTimeout how long it may be silent
	// within it. Default to 3 and 2 minutes. How long an answer takes altogether is limited by the caller's context.
	HeaderTimeout time.Duration
	IdleTimeout   time.Duration
	// MinRate is how fast an answer must grow, in bytes per second, thinking included. Defaults to 16, and to 2 where the
	// operator named the address, which may be a small machine. An answer may be slower for SlowTime altogether, which
	// defaults to 5 minutes; while it is faster, that time comes back.
	MinRate  float64
	SlowTime time.Duration
	// MaxAnswer is the most that an answer may have, in bytes of the JSON in which it is stored, with its calls and
	// signatures. It then ends as if the limit of tokens were reached. Defaults to 2 MiB.
	MaxAnswer int

	once   sync.Once
	public http.RoundTripper
	open   http.RoundTripper
}

// DeltaKind is what a [Delta] is.
type DeltaKind string

// The kinds of deltas.
const (
	TextDelta      DeltaKind = "text"
	ThinkingDelta  DeltaKind = "thinking"
	CallStartDelta DeltaKind = "call_start"
	CallArgsDelta  DeltaKind = "call_args"
	CallEndDelta   DeltaKind = "call_end"
)

// Delta is one piece of an answer as it is written.
type Delta struct {
	Kind DeltaKind
	// Block is the index of the block that it belongs to. Blocks are counted as they begin; the answer leaves out calls
	// that were not finished.
	Block int
	// Text is what is added to a text, to thinking, or to the arguments of a call as they are written.
	Text string
	// CallID and CallName are those of the call, in its start; its other deltas have the CallID.
	CallID   string
	CallName string
}

// Answer is what a model answered.
type Answer struct {
	// Message is the answer in pi's shape. All its calls are complete: their arguments are JSON of at most
	// 100 levels, or a JSON string with what the model wrote instead. They are wanted only if its StopReason is [entry.PiToolUse].
	Message entry.PiAssistant
	// Usage is what was used, and Estimated whether a part of it is a guess, because the call ended before the provider
	// said it.
	Usage     Usage
	Estimated bool
	// Cost is what it cost. CostKnown is false if the model's price is not known; Cost is 0 then.
	Cost      Money
	CostKnown bool
}

// Stream asks a model and returns its answer. It passes the pieces to each as they arrive, in their order, from the
// calling goroutine, and never after it returned; a slow receiver slows the reading down.
//
// The request is sent once. Whether it helps to send it again says [Error.Passing]; when to do so is for the caller to
// decide, who knows how much time there is and who waits.
//
// The error is an [*Error]; the context's if that ended; or a [fault.Error] if the request or the endpoint is wrong.
// With the first two the answer has what was written until then, with what it used and cost, and the StopReason
// [entry.PiError] or [entry.PiAborted]. When Stream returns, the connection is closed or free for the next call.
func (c *Client) Stream(ctx context.Context, endpoint Endpoint, model string, request Request, each func(Delta)) (Answer, error) {
	if err := endpoint.Check(); err != nil {
		return Answer{}, err
	}
	endpoint = endpoint.withDefaults()
	call, sealed, err := request.call(endpoint, model)
	if err != nil {
		return Answer{}, err
	}
	if each == nil {
		each = func(Delta) {}
	}
	began := time.Now()
	s := &stream{each: each, limit: cmp.Or(c.MaxAnswer, 2<<20), open: map[string]int{}}
	w, finish, err := c.attempt(ctx, endpoint, model, call, sealed, request.Pace, s)
	answer := s.answer(endpoint, model, w, finish, err, request)
	answer.Message.Timestamp, answer.Message.DurationMS = began.UnixMilli(), time.Since(began).Milliseconds()
	if ctxErr := ctx.Err(); err != nil && ctxErr != nil {
		answer.Message.StopReason, answer.Message.ErrorMessage = entry.PiAborted, "stopped"
		return answer, fmt.Errorf("calling %s: %w", endpoint.Name, ctxErr)
	}
	return answer, err
}

// Patience returns how long a provider may be silent before its call ends: before its response, or within it.
func (c *Client) Patience(begun bool) time.Duration {
	if begun {
		return cmp.Or(c.IdleTimeout, 2*time.Minute)
	}
	return cmp.Or(c.HeaderTimeout, 3*time.Minute)
}

// attempt sends a request once.
func (c *Client) attempt(ctx context.Context, e Endpoint, model string, call fantasy.Call, sealed *sealedThoughts, pace func(int) func(), s *stream,
) (w *wire, finish fantasy.FinishReason, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil) // closes the connection of an answer that is not read to its end
	w = c.wire(e, cancel)
	w.size = func() int { return s.size }
	w.sealed, w.pace = sealed, pace
	s.proof = w.proof
	defer func() {
		if w.body != nil {
			w.body.Close() //nolint:errcheck // nothing more is wanted from it
		}
		if s.giving {
			return // the receiver panics
		}
		if p := recover(); p != nil { // what a server sends must not end this one, whatever a library makes of it
			w.bad = outOfBounds("it sends what a library cannot read")
			err = w.failure(ctx, model, w.bad)
		}
	}()
	m, err := w.model(ctx, model)
	if err != nil {
		return w, "", newError(UnknownModel, e, model, err.Error(), nil)
	}
	parts, err := m.Stream(ctx, call)
	if err != nil {
		return w, "", w.failure(ctx, model, err)
	}
	for part := range parts {
		if part.Type == fantasy.StreamPartTypeError {
			return w, "", w.failure(ctx, model, part.Error)
		}
		if part.Type == fantasy.StreamPartTypeFinish {
			finish = part.FinishReason
		}
		switch err := s.take(part); {
		case errors.Is(err, errFull):
			return w, fantasy.FinishReasonLength, nil
		case err != nil:
			failed := newError(Unreadable, e, model, err.Error(), nil)
			failed.Status = w.status
			return w, "", failed
		}
	}
	if finish == "" { // the range ended without saying how
		return w, "", w.failure(ctx, model, fantasy.NewIncompleteStreamError())
	}
	w.drain()
	switch refusal := w.refusal.String(); {
	case refusal != "":
		_ = s.write("refusal", entry.PiTextBlock, Delta{Kind: TextDelta, Text: refusal}) // the error says it, too
		return w, finish, newError(Refusal, e, model, refusal, nil)
	case finish == fantasy.FinishReasonContentFilter:
		return w, finish, newError(Refusal, e, model, "", nil)
	case finish == fantasy.FinishReasonError:
		return w, finish, newError(Unknown, e, model, "it ended its answer with an error", nil)
	}
	return w, finish, nil
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

// drain reads what may follow the end of an answer, which is nothing, so that its connection can be used again. It does
// not wait for a server that keeps its response open.
func (w *wire) drain() {
	if w.body == nil {
		return
	}
	w.idle = 20 * time.Millisecond
	var rest [512]byte
	for range 8 {
		if _, err := w.body.Read(rest[:]); err != nil {
			return
		}
	}
}

// model makes fantasy's model on this wire.
func (w *wire) model(ctx context.Context, id string) (fantasy.LanguageModel, error) {
	client := &http.Client{Transport: w, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // the key is for this address alone
	}}
	var p fantasy.Provider
	var err error
	switch url := w.endpoint.root(); {
	case w.endpoint.Provider == OpenRouter:
		p, err = openrouter.New(openrouter.WithAPIKey(placeholder), openrouter.WithHTTPClient(client))
	case w.endpoint.Dialect == Messages:
		p, err = anthropic.New(anthropic.WithAPIKey(placeholder), anthropic.WithBaseURL(url), anthropic.WithHTTPClient(client))
	case w.endpoint.Dialect == Responses:
		p, err = openai.New(openai.WithAPIKey(placeholder), openai.WithBaseURL(url), openai.WithHTTPClient(client),
			openai.WithUseResponsesAPI(), openai.WithResponsesAPIFunc(func(string) bool { return true }))
	case w.endpoint.Dialect == Gemini:
		if strings.Contains(id, "claude") || strings.Contains(id, "anthropic") {
			return nil, errors.New("it has none of Anthropic's models") // fantasy would ask the cloud's metadata for credentials
		}
		p, err = google.New(google.WithGeminiAPIKey(placeholder), google.WithBaseURL(url), google.WithHTTPClient(client))
	case w.endpoint.Dialect == Chat:
		p, err = openaicompat.New(openaicompat.WithAPIKey(placeholder), openaicompat.WithBaseURL(url), openaicompat.WithHTTPClient(client))
	default:
		return nil, fmt.Errorf("there is no dialect %q", w.endpoint.Dialect)
	}
	if err != nil {
		return nil, err
	}
	return p.LanguageModel(ctx, id)
}

// Limits of an answer besides its size. No provider needs more.
const (
	maxBlocks   = 256
	maxCallName = 64
	// maxID limits the id of a call; one that is longer gets an id of ours. maxPartID limits what providers may send: some
	// servers put a signature into it.
	maxID, maxPartID = 256, 64 << 10
	// blockSize is what a block adds to the size of its texts: the names of its fields, and memory.
	blockSize = 128
	// maxCopies is how often an answer of the largest size may be copied: the libraries gather what they read by adding each
	// piece to a copy of the pieces before it. That is enough for pieces of one token.
	maxCopies = 20_000
)

// errFull ends an answer that has become too long.
var errFull = errors.New("the answer is too long")

// stream gathers an answer from fantasy's parts, and gives its deltas.
type stream struct {
	each  func(Delta)
	limit int
	size  int // of the JSON of the blocks, about
	// copied is how many bytes the libraries may have copied.
	copied int
	gave   bool
	// giving: the receiver has a delta just now.
	giving bool
	// proof returns a provider's proof of thinking that fantasy does not pass on, by the id of the part; empty if there is none.
	proof func(id string) string

	blocks []entry.PiBlock
	text   []strings.Builder // what is written of each block
	whole  []bool            // whether a call was finished
	open   map[string]int    // the blocks that are being written, by kind and fantasy's id
}

// give passes a delta on.
func (s *stream) give(d Delta) {
	s.gave, s.giving = true, true
	s.each(d)
	s.giving = false
}

// grow adds to the size. If there is no room for that, the answer is full.
func (s *stream) grow(by int) error {
	if s.size+by > s.limit {
		s.size = s.limit
		return errFull
	}
	s.size += by
	return nil
}

// block returns the block that is being written under a key, and begins it if there is none.
func (s *stream) block(key string, b entry.PiBlock) (at int, err error) {
	at, ok := s.open[key]
	if ok {
		return at, nil
	}
	if len(s.blocks) == maxBlocks {
		s.size = s.limit
		return 0, errFull
	}
	if err := s.grow(blockSize + stored(b.ID) + stored(b.Name)); err != nil {
		return 0, err
	}
	at = len(s.blocks)
	s.open[key] = at
	s.blocks, s.text, s.whole = append(s.blocks, b), append(s.text, strings.Builder{}), append(s.whole, false)
	return at, nil
}

// write adds to the text of the block under a key as much as there is room for.
func (s *stream) write(key, kind string, d Delta) error {
	at, err := s.block(key, entry.PiBlock{Type: kind})
	if err != nil {
		return err
	}
	left := s.limit - s.size
	if err = s.grow(stored(d.Text)); err != nil {
		for i, c := range d.Text {
			if left -= storedRune(c); left < 0 {
				d.Text = d.Text[:i]
				break
			}
		}
	}
	if d.Text != "" {
		s.text[at].WriteString(d.Text)
		d.Block, d.CallID = at, s.blocks[at].ID
		s.give(d)
	}
	return err
}

// stored returns how many bytes a text has in JSON, at most.
func stored(text string) (size int) {
	for _, c := range text {
		size += storedRune(c)
	}
	return size
}

func storedRune(c rune) int {
	switch {
	case c == '"', c == '\\', c == '\n', c == '\r', c == '\t':
		return 2
	case c < ' ', c == '<', c == '>', c == '&', c == '\u2028', c == '\u2029', c == utf8.RuneError: // as \u0000
		return 6
	}
	return utf8.RuneLen(c)
}

// take adds one part. The error is [errFull] if the answer is too long to go on; any other says why the part is none of
// an answer. Blocks begin with their first piece and not with fantasy's start, which comes in another order from Google.
func (s *stream) take(p fantasy.StreamPart) error {
	s.copied += s.size
	switch {
	case s.copied/maxCopies > s.limit:
		s.size = s.limit
		return errFull
	case len(p.ToolCallName) > maxCallName:
		return fmt.Errorf("it calls a tool whose name has %d bytes, more than %d", len(p.ToolCallName), maxCallName)
	case len(p.ID) > maxPartID:
		return fmt.Errorf("it has a part whose id has %d bytes, more than %d", len(p.ID), maxPartID)
	}
	switch p.Type {
	case fantasy.StreamPartTypeTextDelta:
		if p.Delta != "" {
			return s.write("text"+p.ID, entry.PiTextBlock, Delta{Kind: TextDelta, Text: p.Delta})
		}
	case fantasy.StreamPartTypeTextEnd:
		delete(s.open, "text"+p.ID)
	case fantasy.StreamPartTypeReasoningStart, fantasy.StreamPartTypeReasoningDelta, fantasy.StreamPartTypeReasoningEnd:
		return s.think(p)
	case fantasy.StreamPartTypeToolInputStart:
		if !p.ProviderExecuted {
			_, err := s.begin(p)
			return err
		}
	case fantasy.StreamPartTypeToolInputDelta:
		if _, ok := s.open["call"+p.ID]; ok {
			if text := cmp.Or(p.Delta, p.ToolCallInput); text != "" { // Anthropic's are in the second
				return s.write("call"+p.ID, entry.PiCallBlock, Delta{Kind: CallArgsDelta, Text: text})
			}
		}
	case fantasy.StreamPartTypeToolCall:
		if !p.ProviderExecuted {
			return s.finish(p)
		}
	}
	return nil
}

func (s *stream) think(p fantasy.StreamPart) error {
	key := "think" + p.ID
	if p.Type == fantasy.StreamPartTypeReasoningEnd {
		defer delete(s.open, key)
	}
	if _, begun := s.open[key]; !begun {
		p.Delta = strings.TrimLeft(p.Delta, "\n") // responses begin with a line break
	}
	signature, redacted := signatureOf(p.ProviderMetadata)
	if p.Type == fantasy.StreamPartTypeReasoningEnd && s.proof != nil {
		signature = cmp.Or(signature, s.proof(p.ID))
	}
	if signature != "" {
		at, err := s.block(key, entry.PiBlock{Type: entry.PiThinkingBlock})
		if err != nil {
			return err
		}
		b := &s.blocks[at]
		if err := s.grow(max(0, stored(signature)-stored(b.ThinkingSignature))); err != nil {
			return err // half of a proof is none
		}
		b.ThinkingSignature, b.Redacted = signature, redacted
	}
	if p.Delta == "" {
		return nil
	}
	return s.write(key, entry.PiThinkingBlock, Delta{Kind: ThinkingDelta, Text: p.Delta})
}

// signatureOf returns a provider's proof of thinking as text.
func signatureOf(m fantasy.ProviderMetadata) (signature string, redacted bool) {
	if meta, ok := m[anthropic.Name].(*anthropic.ReasoningOptionMetadata); ok {
		return cmp.Or(meta.Signature, meta.RedactedData), meta.Signature == "" && meta.RedactedData != ""
	}
	if meta, ok := m[google.Name].(*google.ReasoningMetadata); ok {
		return base64.StdEncoding.EncodeToString([]byte(meta.Signature)), false // bytes, which are no text
	}
	return "", false
}

// begin begins a call.
func (s *stream) begin(p fantasy.StreamPart) (at int, err error) {
	id := p.ID
	if id == "" || len(id) > maxID || strings.HasPrefix(id, "tool-call-") { // fantasy's own, for servers that give none: the same in each answer
		id = "call_" + rand.Text()
	}
	if at, err = s.block("call"+p.ID, entry.PiBlock{Type: entry.PiCallBlock, ID: id, Name: p.ToolCallName}); err == nil {
		s.give(Delta{Kind: CallStartDelta, Block: at, CallID: id, CallName: p.ToolCallName})
	}
	return at, err
}

// finish ends a call.
func (s *stream) finish(p fantasy.StreamPart) (err error) {
	at, ok := s.open["call"+p.ID]
	if !ok {
		if at, err = s.begin(p); err != nil {
			return err
		}
	}
	delete(s.open, "call"+p.ID)
	b := &s.blocks[at]
	written, name := s.text[at].String(), cmp.Or(p.ToolCallName, b.Name)
	// What was written comes first, because fantasy's is {} if Anthropic's library cannot read that.
	complete := arguments(cmp.Or(written, p.ToolCallInput))
	more := max(0, stored(string(complete))-stored(written)) + max(0, stored(name)-stored(b.Name))
	if err := s.grow(more); err != nil {
		return err
	}
	b.Name, b.Arguments = name, complete
	s.whole[at] = true
	s.give(Delta{Kind: CallEndDelta, Block: at, CallID: b.ID})
	return nil
}

// arguments returns what a model wrote as arguments, as a JSON string if it is broken or too deep. Broken JSON is not
// repaired: half of a command is another command.
func arguments(written string) json.RawMessage {
	text := strings.TrimSpace(written)
	switch {
	case text == "":
		return json.RawMessage("{}")
	case !deep(text) && json.Valid([]byte(text)):
		return json.RawMessage(text)
	}
	quoted, err := json.Marshal(strings.ToValidUTF8(written, "�"))
	if err != nil { // impossible for a string
		return json.RawMessage("{}")
	}
	return quoted
}

// answer puts the answer together.
func (s *stream) answer(e Endpoint, model string, w *wire, finish fantasy.FinishReason, failed error, r Request) Answer {
	m := entry.PiAssistant{API: string(e.Dialect), Provider: e.Name, Model: model, ResponseID: w.id}
	if len(w.id) > maxID { // it is only told
		m.ResponseID = ""
	}
	calls := 0
	for i, b := range s.blocks {
		switch b.Type {
		case entry.PiTextBlock:
			b.Text = strings.ToValidUTF8(s.text[i].String(), "�")
		case entry.PiThinkingBlock:
			b.Thinking = strings.ToValidUTF8(s.text[i].String(), "�")
		case entry.PiCallBlock:
			if !s.whole[i] {
				continue
			}
			calls++
		}
		m.Content = append(m.Content, b)
	}
	switch {
	case failed != nil:
		m.StopReason, m.ErrorMessage = entry.PiError, failed.Error()
	case finish == fantasy.FinishReasonLength:
		m.StopReason = entry.PiLength
	case calls > 0: // whatever the server calls it
		m.StopReason = entry.PiToolUse
	default:
		m.StopReason = entry.PiStopped
	}
	a := Answer{Message: m, Usage: w.usage}
	if w.status == http.StatusOK && w.data { // what was refused costs nothing, whatever the status says
		if a.Usage.Input+a.Usage.CacheRead+a.Usage.CacheWrite == 0 {
			a.Usage.Input, a.Estimated = r.Estimate(), true
		}
		if written := EstimateMessage(m); (failed != nil || s.size >= s.limit || a.Usage.Output == 0) && len(m.Content) > 0 && written > a.Usage.Output {
			a.Usage.Output, a.Estimated = written, true
		}
	}
	price := Lookup(e.Provider, model).Price
	a.Message.Usage = a.Usage.pi(price)
	switch {
	case w.hasCost:
		a.Cost, a.CostKnown = Money(w.cost*float64(Dollar)), true
		a.Message.Usage.Cost = &entry.PiCost{Total: w.cost, TotalFromProvider: true}
	case price != nil:
		a.Cost, a.CostKnown = price.Of(a.Usage), true
	}
	return a
}
