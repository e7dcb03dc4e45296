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
)

// MinRedacted is the length of the shortest value that is redacted, in bytes without line breaks. Shorter ones are in
// ordinary text by chance: to redact them would hide half of an output, and show where they are.
const MinRedacted = 6

// mask replaces each byte of a value. A value is replaced by as many bytes as it has, so that sizes and positions in an
// output stay right, and a value that was redacted already stays as it is.
const mask = '*'

// showAtMost is how many bytes of what may become a value are shown before it is known. Without it, an output that ends
// with the first letter of a value would wait for the next one, and a prompt would look cut off.
const showAtMost = 3

// Redactor removes values from text and bytes: as they are, and as base64 (of a longer text too), hexadecimal, part of a
// URL and part of a JSON string. Line breaks do not count, so that a value is also found where it was wrapped. What is
// removed becomes asterisks. It guards against mistakes: somebody who wants to get a value out of a sandbox can encode it
// in another way.
//
// A Redactor is immutable and safe for concurrent use. A nil one removes nothing.
type Redactor struct {
	// least is the length of the shortest pattern. The search looks at windows of this length (Wu and Manber 1994), and
	// skips by what their last two bytes allow.
	least int
	skip  *[1 << 16]uint8
	// heads are the patterns by their first six bytes, and short the beginnings of patterns that are shorter.
	heads map[[MinRedacted]byte][][]byte
	short map[string]bool
	// size is about how much memory it takes, in bytes.
	size int
}

// A search compares at most this many bytes for each byte of text, and some more: values that begin alike, in a text that
// is like them, would otherwise let a member keep the server busy. Beyond that, the rest of the text is removed, because
// it was not searched.
const comparedPerByte, comparedMore = 16, 1 << 20

// NewRedactor returns a Redactor for values; nil if none of them is long enough ([MinRedacted]).
func NewRedactor(values ...[]byte) *Redactor {
	r := &Redactor{least: 255, skip: new([1 << 16]uint8), heads: map[[MinRedacted]byte][][]byte{}, short: map[string]bool{}}
	seen := map[string]bool{}
	var all [][]byte
	for _, value := range values {
		for _, p := range patterns(value) {
			if !seen[string(p)] {
				seen[string(p)] = true
				all = append(all, p)
				r.least = min(r.least, len(p))
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	r.size = len(r.skip)
	for i := range r.skip {
		r.skip[i] = uint8(r.least - 1)
	}
	for _, p := range all {
		head := [MinRedacted]byte(p)
		r.heads[head] = append(r.heads[head], p)
		r.size += len(p) + 100
		for n := 1; n < MinRedacted; n++ {
			r.short[string(p[:n])] = true
		}
		for end := 1; end < r.least; end++ {
			block := uint16(p[end-1]) | uint16(p[end])<<8
			r.skip[block] = min(r.skip[block], uint8(r.least-1-end))
		}
	}
	return r
}

// patterns are the forms of a value that are looked for, without line breaks.
func patterns(value []byte) (all [][]byte) {
	if len(bytes.TrimSpace(value)) == 0 {
		return nil
	}
	text := string(value)
	add := func(form string) {
		if flat := flatten([]byte(form)); len(flat) >= MinRedacted {
			all = append(all, flat)
		}
	}
	if len(flatten(value)) < MinRedacted {
		return nil
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

// find calls found with each part of text that is to be removed, in the order of their starts; they may overlap. hold is
// the earliest position at which a value may begin that text does not have completely; len(text) if there is none. held is
// how many bytes of that value there are.
func (r *Redactor) find(text []byte, found func(from, to int)) (hold, held int) {
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
	n, at := len(flat), 0
	first := n
	budget := comparedPerByte*n + comparedMore
	// begins reports whether one of both begins with the other.
	begins := func(p, rest []byte) bool {
		m := min(len(p), len(rest))
		if few := min(m, 16); !bytes.Equal(p[:few], rest[:few]) {
			budget -= few
			return false
		}
		budget -= m
		return bytes.Equal(p[:m], rest[:m])
	}
	for at+r.least <= n {
		end := at + r.least - 1
		if skip := r.skip[uint16(flat[end-1])|uint16(flat[end])<<8]; skip > 0 {
			at += int(skip)
			continue
		}
		longest := 0
		for _, p := range r.heads[[MinRedacted]byte(flat[at:])] {
			switch rest := flat[at:]; {
			case len(p) <= longest || !begins(p, rest):
			case len(p) <= len(rest):
				longest = len(p)
			default:
				first = min(first, at)
			}
			if budget < 0 {
				found(place(min(first, at)), len(text))
				return len(text), 0
			}
		}
		if longest > 0 {
			found(place(at), place(at+longest-1)+1)
		}
		at++
	}
	for ; at < first; at++ {
		rest := flat[at:]
		if len(rest) < MinRedacted {
			if r.short[string(rest)] {
				first = at
			}
			continue
		}
		for _, p := range r.heads[[MinRedacted]byte(rest)] {
			if len(rest) < len(p) && begins(p, rest) {
				first = at
				break
			}
		}
		if budget < 0 {
			found(place(min(first, at)), len(text))
			return len(text), 0
		}
	}
	if first == n {
		return len(text), 0
	}
	return place(first), n - first
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

// JSON returns a JSON text without the values. It stays valid, whatever the values are.
func (r *Redactor) JSON(text []byte) []byte {
	out := r.Bytes(text)
	if r == nil || len(text) == 0 || &out[0] == &text[0] || json.Valid(out) {
		return out
	}
	// A value was a number, or reached from one string into another. The parts are redacted one by one then.
	var parsed any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&parsed) != nil {
		return out
	}
	whole, err := json.Marshal(r.part(parsed))
	if again := r.Bytes(whole); err != nil || !json.Valid(again) {
		quoted, _ := json.Marshal(string(out)) // cannot fail for a string
		return quoted
	} else {
		return again
	}
}

// part redacts a part of a JSON text. A number that has a value becomes a string.
func (r *Redactor) part(v any) any {
	switch v := v.(type) {
	case string:
		return r.String(v)
	case json.Number:
		if text := r.String(v.String()); text != v.String() {
			return text
		}
	case []any:
		for i := range v {
			v[i] = r.part(v[i])
		}
	case map[string]any:
		clean := make(map[string]any, len(v))
		for name, one := range v {
			clean[r.String(name)] = r.part(one)
		}
		return clean
	}
	return v
}

// Stream returns a stream that gives what is written to it to take, without the values, also where a value comes in
// pieces. It holds back what may be the beginning of a value, except up to three bytes. A nil Redactor's gives
// everything at once.
func (r *Redactor) Stream(take func([]byte)) *Stream { return &Stream{redactor: r, take: take} }

// Stream redacts what is written to it in pieces. It is not safe for concurrent use.
type Stream struct {
	redactor *Redactor
	take     func([]byte)
	// kept is the end of what was written, which may be the beginning of a value. Its first shown bytes were given
	// already; its first masked ones belong to a value that was found.
	kept          []byte
	shown, masked int
	buffer        []byte
	ends          [][2]int
}

// Write gives p on, as far as it is certain. take must not keep what it is given.
func (s *Stream) Write(p []byte) {
	if s.redactor == nil {
		s.take(p)
		return
	}
	text := p
	if len(s.kept) > 0 {
		s.buffer = append(append(s.buffer[:0], s.kept...), p...)
		text = s.buffer
	}
	out, ends := text, s.ends[:0]
	clone := func() {
		if len(text) > 0 && &out[0] == &text[0] {
			out = bytes.Clone(text)
		}
	}
	if s.masked > 0 {
		clone()
		cover(out[:s.masked])
	}
	hold, held := s.redactor.find(text, func(from, to int) {
		clone()
		cover(out[from:to])
		ends = append(ends, [2]int{from, to})
	})
	covered := s.masked
	for _, e := range ends {
		if e[0] < hold { // the others are found again, with what follows
			covered = max(covered, e[1])
		}
	}
	s.ends = ends
	until := hold
	if held <= showAtMost {
		until = len(text)
	}
	if from := s.shown; until > from {
		s.take(out[from:until])
	}
	s.shown = max(until-hold, s.shown-hold, 0)
	s.masked = max(covered-hold, 0)
	s.kept = append(s.kept[:0], text[hold:]...)
}

// Holds reports whether something is held back.
func (s *Stream) Holds() bool { return len(s.kept) > s.shown }

// Flush gives what was held back, because nothing follows it. What is written later begins anew.
func (s *Stream) Flush() {
	if len(s.kept) > s.shown {
		out := bytes.Clone(s.kept)
		cover(out[:s.masked])
		// What was kept may have a value that is the beginning of a longer one.
		s.redactor.find(s.kept, func(from, to int) { cover(out[from:to]) })
		s.take(out[s.shown:])
	}
	s.kept, s.shown, s.masked = s.kept[:0], 0, 0
}
