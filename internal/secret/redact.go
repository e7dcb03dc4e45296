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

// MinRedacted is the length of the shortest value that is redacted, in bytes without line breaks. Shorter ones are in
// ordinary text by chance: to redact them would hide half of an output, and show where they are.
const MinRedacted = 6

// mask replaces each byte of a value. A value is replaced by as many bytes as it has, so that sizes and positions in an
// output stay right. It is a letter, because people copy what they see: no shell expands it, and it means nothing in a
// pattern, a path, a URL, JSON or Markdown. An asterisk would be every file, and a hash mark the end of the command.
const mask = 'x'

// heldFor is how long [Redactor.Live] holds bytes back, at most twice. A value whose bytes come within this time is redacted
// before any of it is shown.
const heldFor = 50 * time.Millisecond

// Redactor removes values from text and bytes: as they are, and as base64 (of a longer text too), hexadecimal, part of a
// URL and part of a JSON string. Line breaks do not count, so that a value is also found where it was wrapped. Each byte of
// what is removed becomes an x. It guards against mistakes: somebody who wants to get a value out of a sandbox can encode it
// in another way.
//
// What a Redactor shows, and when, tells nothing about its values but how long they are, as long as a text has none of them
// completely. Give it only values that the author of the text received.
//
// A Redactor is immutable and safe for concurrent use. A nil one removes nothing.
type Redactor struct {
	// least is the length of the shortest pattern. The search looks at windows of this length (Wu and Manber 1994), and
	// skips by what their last two bytes allow.
	least int
	skip  *[1 << 16]uint8
	// heads are the patterns by their first six bytes.
	heads map[[MinRedacted]byte][][]byte
	// window is the length of the longest pattern without its last byte: whether a byte belongs to a value is known when so
	// many bytes follow it.
	window int
	// everything: all bytes are removed.
	everything bool
}

// Everything removes all bytes but line breaks. It is for output whose values are not known any more.
var Everything = &Redactor{everything: true}

// A search compares at most this many bytes for each byte of text, and some more: values that begin alike, in a text that
// is like them, would otherwise let a member keep the server busy. Beyond that, the rest of the text is removed, because
// it was not searched.
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

// patterns are the forms of a value that are looked for, without line breaks.
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
	// A line of a key that has several, but not one that all keys have.
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); len(line) >= 16 && len(line) < len(text) && !strings.HasPrefix(line, "-----") {
			add(line)
		}
	}
	for _, form := range []string{url.QueryEscape(text), url.PathEscape(text)} {
		add(form)
		add(lowerEscapes(form))
	}
	var plain bytes.Buffer
	e := json.NewEncoder(&plain)
	e.SetEscapeHTML(false)
	for _, encode := range []func() ([]byte, error){
		func() ([]byte, error) { return json.Marshal(text) },
		func() ([]byte, error) { err := e.Encode(text); return bytes.TrimSpace(plain.Bytes()), err },
	} {
		if quoted, err := encode(); err == nil { // always, because it is a string
			add(string(quoted[1 : len(quoted)-1]))
		}
	}
	add(hex.EncodeToString(value))
	add(strings.ToUpper(hex.EncodeToString(value)))
	for before := range 3 {
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			// The characters that depend on nothing but the value, whatever is before and after it.
			form := encoding.EncodeToString(append(make([]byte, before), value...))
			add(form[(before*8+5)/6 : (before+len(value))*8/6])
		}
	}
	return all
}

// lowerEscapes writes the escapes of a URL with small letters, as some programs do.
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

// piece is a part of a text between line breaks: where it is in the text without them, and in the text itself.
type piece struct{ flat, text int }

// room is memory for a search, which is used again.
type room struct {
	flat   []byte
	pieces []piece
}

// rooms are a few rooms that nobody uses now.
var rooms = make(chan *room, 8)

func takeRoom() *room {
	select {
	case r := <-rooms:
		return r
	default:
		return new(room)
	}
}

func (r *room) giveBack() {
	if cap(r.flat) > 1<<20 { // a single large text must not take memory for ever
		return
	}
	select {
	case rooms <- r:
	default:
	}
}

// split copies a text without its line breaks.
func (r *room) split(text []byte) {
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

// find calls found with each part of text that is to be removed, in the order of their starts; they may overlap.
func (r *Redactor) find(text []byte, found func(from, to int)) {
	if r.everything {
		found(0, len(text))
		return
	}
	flat, pieces := text, []piece(nil)
	if bytes.IndexByte(text, '\n') >= 0 || bytes.IndexByte(text, '\r') >= 0 {
		room := takeRoom()
		defer room.giveBack()
		room.split(text)
		flat, pieces = room.flat, room.pieces
	}
	// place returns where a position of flat is in text.
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

// Bytes returns p without the values: p itself if it has none, otherwise a copy.
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

// Has reports whether a text has one of the values.
func (r *Redactor) Has(text string) (has bool) {
	if r != nil {
		r.find([]byte(text), func(int, int) { has = true })
	}
	return has
}

// Stream returns a stream that gives what is written to it to take, without the values, also where a value comes in
// pieces: what it gives is what [Redactor.Bytes] makes of the whole. It holds back the last bytes, as many as the longest
// value may have, whatever they are. A nil Redactor's gives everything at once.
func (r *Redactor) Stream(take func([]byte)) *Stream { return &Stream{redactor: r, take: take} }

// Live is [Redactor.Stream] for people and programs that wait for what is written: it holds no byte back for longer than a
// tenth of a second. Of a value that comes in pieces over a longer time, it gives the first pieces.
func (r *Redactor) Live(take func([]byte)) *Stream {
	return &Stream{redactor: r, take: take, patience: heldFor}
}

// Stream redacts what is written to it in pieces. What it gives, and when, depends on no value, unless it was written
// completely. It is safe for concurrent use. It calls take for one piece after the other, perhaps on another goroutine than
// the writer's; take must not keep what it is given, nor use the stream.
type Stream struct {
	redactor *Redactor
	take     func([]byte)
	patience time.Duration // 0 if bytes are held back however long it takes

	mu sync.Mutex
	// kept is the end of what was written, in which a value may begin that goes on in what follows. Its first shown bytes
	// were given already; its first masked ones belong to a value that was found.
	kept          []byte
	shown, masked int
	flat          int // how many bytes of kept are no line breaks
	// aged is how many bytes of kept were there when the timer was set that runs while ticking.
	aged    int
	ticking bool
}

// Write gives on what is certain of what was written. It never fails.
func (s *Stream) Write(p []byte) (int, error) {
	if s.redactor == nil {
		s.take(p)
		return len(p), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, p...)
	s.flat += len(p) - bytes.Count(p, []byte{'\n'}) - bytes.Count(p, []byte{'\r'})
	// Not with each byte, because each time the whole window is searched.
	if window := s.redactor.window; s.flat > window+window/2 {
		s.give(0)
	}
	if s.patience > 0 && !s.ticking && s.shown < len(s.kept) {
		s.ticking, s.aged = true, len(s.kept)
		time.AfterFunc(s.patience, s.tick)
	}
	return len(p), nil
}

// tick gives what has waited for as long as it may.
func (s *Stream) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.give(s.aged)
	s.aged = len(s.kept)
	if s.ticking = s.shown < len(s.kept); s.ticking {
		time.AfterFunc(s.patience, s.tick)
	}
}

// Flush gives what was held back, because nothing follows it. What is written later does not continue it.
func (s *Stream) Flush() {
	if s.redactor == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.give(len(s.kept))
	s.kept, s.shown, s.masked, s.flat, s.aged = s.kept[:0], 0, 0, 0, 0
}

// give gives what is kept but for the window, and at least the bytes before until. It keeps the window.
func (s *Stream) give(until int) {
	hold := s.window()
	if until = max(until, hold); until <= s.shown {
		return
	}
	out, covered := bytes.Clone(s.kept), s.masked
	cover(out[:s.masked])
	s.redactor.find(s.kept, func(from, to int) {
		cover(out[from:to])
		if from < hold { // the others are found again, with what follows
			covered = max(covered, to)
		}
	})
	s.take(out[s.shown:until])
	s.kept = s.kept[:copy(s.kept, s.kept[hold:])]
	s.shown, s.masked, s.aged = until-hold, max(covered-hold, 0), max(s.aged-hold, 0)
	s.flat = min(s.flat, s.redactor.window)
}

// window returns where the last bytes of kept begin that may belong to a value that is not complete.
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

// Redactable reports whether a value is removed from texts. What is blank, shorter than [MinRedacted] or a common word is
// not, because it is in ordinary text by chance.
func Redactable(value []byte) bool {
	flat := flatten(value)
	return len(flat) >= MinRedacted && len(bytes.TrimSpace(value)) > 0 && strings.Trim(string(flat), string(flat[:1])) != "" &&
		!common[strings.ToLower(string(flat))]
}

// common are values that people choose for a test, and words of programs.
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
