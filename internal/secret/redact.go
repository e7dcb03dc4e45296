package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"
)

// MinRedacted is the length of the shortest redacted value, in bytes without line breaks. Ordinary text contains
// shorter ones by chance. Redacting them would hide half of an output, and show where they are.
const MinRedacted = 6

// mask replaces each byte of a value, so that sizes and positions in an output stay right. It is a letter, because
// people copy what they see: no shell expands a letter, and it means nothing special in a pattern, a path, a URL, JSON
// or Markdown. An asterisk would match every file, and a hash mark would end the command.
const mask = 'x'

// heldFor is how long [Redactor.Live] holds bytes back, at most twice. A value whose bytes arrive within this time is
// redacted before any of it is shown.
const heldFor = 50 * time.Millisecond

// Redactor removes values from text and bytes: as they are, and as base64 (even inside a longer text), hexadecimal,
// part of a URL and part of a JSON string. It ignores line breaks, so that it finds a value that was wrapped. Each
// removed byte becomes an x. It guards against mistakes: somebody who wants to get a value out of a sandbox can encode
// it differently.
//
// As long as a text contains no complete value, what a Redactor shows, and when, reveals only how long its values are.
// Give it only values that the author of the text received.
//
// A Redactor is immutable and safe for concurrent use. A nil one removes nothing.
type Redactor struct {
	// least is the length of the shortest pattern. The search looks at windows of this length (Wu and Manber 1994), and
	// skips by what their last two bytes allow.
	least int
	skip  *[1 << 16]uint8
	// heads are the patterns by their first six bytes.
	heads map[[MinRedacted]byte][][]byte
	// window is the length of the longest pattern minus one: once so many bytes follow a byte, it is certain whether that
	// byte belongs to a value.
	window int
	// everything makes the Redactor remove all bytes.
	everything bool
}

// Everything removes all bytes but line breaks. It is for output of commands whose secrets are no longer known.
var Everything = &Redactor{everything: true}

// A search compares at most this many bytes for each byte of text, plus a constant. Otherwise a member could keep the
// server busy with values that begin alike and a text that resembles them. Beyond the limit, the rest of the text is
// removed, because it was not searched.
const comparedPerByte, comparedMore = 16, 1 << 20

// NewRedactor returns a Redactor for values; nil if none of them is [Redactable].
func NewRedactor(values ...[]byte) *Redactor {
	r := &Redactor{least: 255, skip: new([1 << 16]uint8), heads: map[[MinRedacted]byte][][]byte{}}
	seen := map[string]bool{}
	var all [][]byte
	for _, value := range values {
		for _, p := range patterns(value) {
			if !seen[string(p)] {
				seen[string(p)] = true
				all = append(all, p)
				r.least, r.window = min(r.least, len(p)), max(r.window, len(p)-1)
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	for i := range r.skip {
		r.skip[i] = uint8(r.least - 1)
	}
	for _, p := range all {
		head := [MinRedacted]byte(p)
		r.heads[head] = append(r.heads[head], p)
		for end := 1; end < r.least; end++ {
			block := uint16(p[end-1]) | uint16(p[end])<<8
			r.skip[block] = min(r.skip[block], uint8(r.least-1-end))
		}
	}
	return r
}

// patterns returns the forms of a value to search for, without line breaks.
func patterns(value []byte) (all [][]byte) {
	if !Redactable(value) {
		return nil
	}
	text := string(value)
	add := func(form string) {
		if flat := flatten([]byte(form)); len(flat) >= MinRedacted {
			all = append(all, flat)
		}
	}
	add(text)
	// Each line of a key of several lines, except for lines that all keys have.
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); len(line) >= 16 && len(line) < len(text) && !strings.HasPrefix(line, "-----") {
			add(line)
		}
	}
	for _, form := range []string{url.QueryEscape(text), url.PathEscape(text)} {
		add(form)
		add(lowerEscapes(form))
	}
	for _, form := range jsonForms(text) {
		add(form)
	}
	add(hex.EncodeToString(value))
	add(strings.ToUpper(hex.EncodeToString(value)))
	for _, form := range base64Forms(value) {
		add(form)
	}
	return all
}

// jsonForms returns a text as JSON encoders write it in a string.
func jsonForms(text string) (forms []string) {
	var plain bytes.Buffer
	e := json.NewEncoder(&plain)
	e.SetEscapeHTML(false)
	for _, encode := range []func() ([]byte, error){
		func() ([]byte, error) { return json.Marshal(text) },
		func() ([]byte, error) { err := e.Encode(text); return bytes.TrimSpace(plain.Bytes()), err },
	} {
		if quoted, err := encode(); err == nil { // always, because it is a string
			forms = append(forms, string(quoted[1:len(quoted)-1]))
		}
	}
	return forms
}

// base64Forms returns the base64 of a value, without the characters that depend on what surrounds it.
func base64Forms(value []byte) (forms []string) {
	for before := range 3 {
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			form := encoding.EncodeToString(append(make([]byte, before), value...))
			forms = append(forms, form[(before*8+5)/6:(before+len(value))*8/6])
		}
	}
	return forms
}

// lowerEscapes writes the escapes of a URL in lower case, as some programs do.
func lowerEscapes(form string) string {
	b := []byte(form)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i:i+3], bytes.ToLower(b[i:i+3]))
			i += 2
		}
	}
	return string(b)
}

// flatten removes line breaks. It returns b itself if there are none.
func flatten(b []byte) []byte {
	if !bytes.ContainsAny(b, "\r\n") {
		return b
	}
	return slices.DeleteFunc(bytes.Clone(b), func(c byte) bool { return c == '\n' || c == '\r' })
}

// piece is a part of a text between line breaks: its position in the text without line breaks, and in the text itself.
type piece struct{ flat, text int }

// buffer is the memory of a search, which is reused.
type buffer struct {
	flat   []byte
	pieces []piece
}

// buffers holds a few unused buffers.
var buffers = make(chan *buffer, 8)

func takeBuffer() *buffer {
	select {
	case r := <-buffers:
		return r
	default:
		return new(buffer)
	}
}

func (r *buffer) giveBack() {
	if cap(r.flat) > 1<<20 { // a single large text must not occupy memory forever
		return
	}
	select {
	case buffers <- r:
	default:
	}
}

// split copies a text without its line breaks.
func (r *buffer) split(text []byte) {
	r.flat, r.pieces = r.flat[:0], r.pieces[:0]
	returns := bytes.IndexByte(text, '\r') >= 0
	for at := 0; at < len(text); {
		line := text[at:]
		if i := bytes.IndexByte(line, '\n'); i >= 0 {
			line = line[:i]
		}
		if returns {
			if i := bytes.IndexByte(line, '\r'); i >= 0 {
				line = line[:i]
			}
		}
		if len(line) > 0 {
			r.pieces = append(r.pieces, piece{len(r.flat), at})
			r.flat = append(r.flat, line...)
		}
		at += len(line) + 1
	}
}

// find calls found with each part of text to remove, in the order of their starts. Parts may overlap.
func (r *Redactor) find(text []byte, found func(from, to int)) {
	if r.everything {
		found(0, len(text))
		return
	}
	flat, pieces := text, []piece(nil)
	if bytes.IndexByte(text, '\n') >= 0 || bytes.IndexByte(text, '\r') >= 0 {
		buf := takeBuffer()
		defer buf.giveBack()
		buf.split(text)
		flat, pieces = buf.flat, buf.pieces
	}
	// place converts a position in flat to a position in text.
	place := func(at int) int {
		if pieces == nil {
			return at
		}
		i := sort.Search(len(pieces), func(i int) bool { return pieces[i].flat > at }) - 1
		return pieces[i].text + at - pieces[i].flat
	}
	n := len(flat)
	budget := comparedPerByte*n + comparedMore
	// begins reports whether rest begins with p.
	begins := func(rest, p []byte) bool {
		if few := min(len(p), 16); !bytes.Equal(p[:few], rest[:few]) {
			budget -= few
			return false
		}
		budget -= len(p)
		return bytes.Equal(p, rest[:len(p)])
	}
	for at := 0; at+r.least <= n; at++ {
		end := at + r.least - 1
		if skip := r.skip[uint16(flat[end-1])|uint16(flat[end])<<8]; skip > 0 {
			at += int(skip) - 1
			continue
		}
		longest := 0
		for _, p := range r.heads[[MinRedacted]byte(flat[at:])] {
			if len(p) > longest && len(p) <= n-at && begins(flat[at:], p) {
				longest = len(p)
			}
			if budget < 0 {
				found(place(at), len(text))
				return
			}
		}
		if longest > 0 {
			found(place(at), place(at+longest-1)+1)
		}
	}
}

// cover masks a part of text, but not its line breaks.
func cover(text []byte) {
	for i, c := range text {
		if c != '\n' && c != '\r' {
			text[i] = mask
		}
	}
}

// Bytes returns p without the values: p itself if it contains none, otherwise a copy.
func (r *Redactor) Bytes(p []byte) []byte {
	if r == nil {
		return p
	}
	out := p
	r.find(p, func(from, to int) {
		if &out[0] == &p[0] {
			out = bytes.Clone(p)
		}
		cover(out[from:to])
	})
	return out
}

// String returns text without the values.
func (r *Redactor) String(text string) string {
	if r == nil {
		return text
	}
	var out []byte
	r.find([]byte(text), func(from, to int) {
		if out == nil {
			out = []byte(text)
		}
		cover(out[from:to])
	})
	if out == nil {
		return text
	}
	return string(out)
}

// Has reports whether a text contains one of the values.
func (r *Redactor) Has(text string) (has bool) {
	if r != nil {
		r.find([]byte(text), func(int, int) { has = true })
	}
	return has
}

// Stream returns a stream that redacts what is written to it and passes it to take. Its output is the same as that of
// [Redactor.Bytes] for the whole input, even if a value arrives in pieces. It therefore holds back as many last bytes
// as the longest value may have. The stream of a nil Redactor passes on everything at once.
func (r *Redactor) Stream(take func([]byte)) *Stream { return &Stream{redactor: r, take: take} }

// Live is [Redactor.Stream] for people and programs that wait for the output: it holds no byte back for longer than a
// tenth of a second. If a value arrives in pieces over a longer time, it shows the first pieces.
func (r *Redactor) Live(take func([]byte)) *Stream {
	return &Stream{redactor: r, take: take, patience: heldFor}
}

// Stream redacts what is written to it in pieces. Only completely written values affect what it passes on, and when. It
// is safe for concurrent use. It calls take for one piece after the other, perhaps in another goroutine than the
// writer's. take must not keep its argument or use the stream.
type Stream struct {
	redactor *Redactor
	take     func([]byte)
	patience time.Duration // 0 if bytes are held back without a time limit

	mu sync.Mutex
	// kept is the end of the input, which may contain the beginning of a value. Its first shown bytes were already
	// passed on; its first masked bytes belong to a value that was found.
	kept          []byte
	shown, masked int
	flat          int // the number of bytes of kept that are not line breaks
	// aged is the number of bytes of kept when the current timer was set. ticking reports that a timer runs.
	aged    int
	ticking bool
}

// Write passes on the bytes that are certain. It never fails.
func (s *Stream) Write(p []byte) (int, error) {
	if s.redactor == nil {
		s.take(p)
		return len(p), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, p...)
	s.flat += len(p) - bytes.Count(p, []byte{'\n'}) - bytes.Count(p, []byte{'\r'})
	// Not for each byte, because each call searches the whole window.
	if window := s.redactor.window; s.flat > window+window/2 {
		s.give(0)
	}
	if s.patience > 0 && !s.ticking && s.shown < len(s.kept) {
		s.ticking, s.aged = true, len(s.kept)
		time.AfterFunc(s.patience, s.tick)
	}
	return len(p), nil
}

// tick passes on the bytes that have waited for the maximum time.
func (s *Stream) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.give(s.aged)
	s.aged = len(s.kept)
	if s.ticking = s.shown < len(s.kept); s.ticking {
		time.AfterFunc(s.patience, s.tick)
	}
}

// Flush passes on what was held back. Later writes do not continue it.
func (s *Stream) Flush() {
	if s.redactor == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.give(len(s.kept))
	s.kept, s.shown, s.masked, s.flat, s.aged = s.kept[:0], 0, 0, 0, 0
}

// give passes on what is kept except for the window, and at least the bytes before until. It keeps the window.
func (s *Stream) give(until int) {
	hold := s.window()
	if until = max(until, hold); until <= s.shown {
		return
	}
	out, covered := bytes.Clone(s.kept), s.masked
	cover(out[:s.masked])
	s.redactor.find(s.kept, func(from, to int) {
		cover(out[from:to])
		if from < hold { // later ones are found again with the next input
			covered = max(covered, to)
		}
	})
	s.take(out[s.shown:until])
	s.kept = s.kept[:copy(s.kept, s.kept[hold:])]
	s.shown, s.masked, s.aged = until-hold, max(covered-hold, 0), max(s.aged-hold, 0)
	s.flat = min(s.flat, s.redactor.window)
}

// window returns the position in kept after which bytes may belong to an incomplete value.
func (s *Stream) window() int {
	over := s.flat - s.redactor.window
	for i, c := range s.kept {
		if over <= 0 {
			return i
		}
		if c != '\n' && c != '\r' {
			over--
		}
	}
	return len(s.kept)
}

// Redactable reports whether a value is removed from texts. Ordinary text contains values that are blank, shorter than
// [MinRedacted] or common words by chance, so these are not removed.
func Redactable(value []byte) bool {
	flat := flatten(value)
	return len(flat) >= MinRedacted && len(bytes.TrimSpace(value)) > 0 && strings.Trim(string(flat), string(flat[:1])) != "" &&
		!common[strings.ToLower(string(flat))]
}

// common are values that people choose for tests, and words of programs.
var common = func() map[string]bool {
	all := map[string]bool{}
	for _, word := range strings.Fields(`
		123456 1234567 12345678 123456789 1234567890 abc123 abcdef access account administrator anonymous apikey api_key backup bearer
		changeme command config content database debug-key default delete deploy develop development disable disabled docker dummy
		enable enabled example foobar function github google hunter2 internal invalid letmein localhost master message monkey mysql
		nobody number object option output passw0rd passwd password password1 password123 placeholder postgres postgresql private
		production public qwerty release remote replace request response result return running sample sandbox secret secret123 server
		service setting string success system testing testtest thread token123 unknown update update_me username user123 values version
		welcome workspace`) {
		all[word] = true
	}
	return all
}()
