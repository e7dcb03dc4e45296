package dispatch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/picture"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/turn"
)

// The tools in this file read what a bot's transcript leaves out, page by page. Each result tells how to continue, so that a
// bot can read everything.

// shownPage limits one page, in bytes. It is less than a tool's result may have, to leave room for the note about the rest.
const shownPage = 40 << 10

// defaultListed and mostListed limit the entries or threads that a tool shows, and shownText the text of each entry.
const (
	defaultListed, mostListed = 30, 200
	shownText                 = 2 << 10
)

const readThreadAbout = `Reads entries of a thread of this house, the newest ones last. Without thread_id, it reads this thread. Without
other arguments, it reads the last entries; with from, those from that position on; with entry, the text of one entry, however long.`

const readThreadSchema = `{"type":"object","properties":{
	"thread_id":{"type":"string"},
	"from":{"type":"integer","minimum":1,"description":"show the entries from this position on"},
	"before":{"type":"integer","minimum":1,"description":"show the entries before this position"},
	"limit":{"type":"integer","minimum":1,"maximum":200},
	"entry":{"type":"integer","minimum":1,"description":"show the whole text of the entry at this position"},
	"offset":{"type":"integer","minimum":0,"description":"with entry: where in its text to begin, in bytes"}},"additionalProperties":false}`

type readArguments struct {
	Thread string `json:"thread_id"`
	From   int64  `json:"from"`
	Before int64  `json:"before"`
	Limit  int    `json:"limit"`
	Entry  int64  `json:"entry"`
	Offset int64  `json:"offset"`
}

func (d *Dispatcher) readForBot(ctx context.Context, c turn.Call, a readArguments) (string, error) {
	if a.Thread == "" {
		a.Thread = c.Thread
	}
	th, err := d.threads.Get(ctx, c.Scope, a.Thread)
	if err != nil {
		return "", err
	}
	wanted := a.wanted()
	entries, tail, err := d.log.Read(ctx, th.Stream(), wanted)
	if err == nil {
		entries, err = d.present(ctx, th.Stream(), entries)
	}
	if err != nil {
		return "", err
	}
	top := fmt.Sprintf("thread %s %q has %d entries\n", th.ID, turn.Name(th.Name), tail)
	if a.Entry > 0 {
		if len(entries) == 0 || entries[0].Seq != a.Entry {
			return "", fault.Newf(fault.NotFound, "choose one of its entries", "the thread has no entry %d", a.Entry)
		}
		text, err := shownEntry(entries[0], d.names(ctx, c), a.Offset, shownPage)
		return top + text, err
	}
	text, err := d.list(ctx, c, entries, wanted, tail)
	if err != nil {
		return "", err
	}
	return top + text, nil
}

// wanted returns the range to read: one entry, those from a position on, or the last ones.
func (a readArguments) wanted() stream.Range {
	limit := min(cmp.Or(a.Limit, defaultListed), mostListed)
	switch {
	case a.Entry > 0:
		return stream.Range{After: a.Entry - 1, Limit: 1}
	case a.From > 0:
		return stream.Range{After: a.From - 1, Before: a.Before, Limit: limit}
	}
	return stream.Range{Before: a.Before, Limit: limit, Last: true}
}

// list shows as many of the entries as there is room for, and says how to read the others.
func (d *Dispatcher) list(ctx context.Context, c turn.Call, entries []entry.Entry, wanted stream.Range, tail int64) (string, error) {
	if wanted.Last { // the last ones matter most
		slices.Reverse(entries)
	}
	shown, err := shownEntries(entries, d.names(ctx, c))
	if err != nil {
		return "", err
	}
	if len(shown) == 0 {
		return "there are no entries there\n", nil
	}
	last, earlier, later := entries[len(shown)-1].Seq, "", ""
	switch {
	case !wanted.Last && last < tail && (wanted.Before == 0 || last+1 < wanted.Before):
		later = fmt.Sprintf("(later ones: from %d)\n", last+1)
	case wanted.Last && last > 1:
		earlier = fmt.Sprintf("(earlier ones: before %d)\n", last)
	}
	if wanted.Last {
		slices.Reverse(shown)
	}
	return earlier + strings.Join(shown, "") + later, nil
}

// shownEntries returns as many of the first entries, as bots read them, as fit on a page.
func shownEntries(entries []entry.Entry, name func(author string) (string, error)) (shown []string, err error) {
	size := 0
	for _, e := range entries {
		text, err := shownEntry(e, name, 0, shownText)
		if err != nil {
			return nil, err
		}
		if size += len(text); size > shownPage && len(shown) > 0 {
			break
		}
		shown = append(shown, text)
	}
	return shown, nil
}

// shownEntry returns at most this many bytes of an entry's text from an offset on, as bots read them.
func shownEntry(e entry.Entry, name func(author string) (string, error), offset int64, most int) (string, error) {
	author, err := name(e.Author)
	if err != nil {
		return "", err
	}
	text := string(e.Payload)
	if p, ok := entry.Decode(e); ok {
		text = p.Plain()
	}
	shown, rest := textPage(text, offset, most)
	if rest > 0 {
		shown += fmt.Sprintf("\n(%d more bytes: read entry %d with offset %d)", rest, e.Seq, int64(len(text))-rest)
	}
	return head(e, author) + "\n" + shown + "\n", nil
}

// textPage returns a part of a foreign text as a quote of at most this many bytes, and how many bytes of the text follow it.
// The part begins and ends at a character.
func textPage(text string, offset int64, most int) (quote string, rest int64) {
	begin := int(min(max(offset, 0), int64(len(text))))
	for begin > 0 && begin < len(text) && !utf8.RuneStart(text[begin]) {
		begin--
	}
	part := text[begin:]
	for n := min(len(part), most); ; n = n * 3 / 4 {
		for n > 0 && n < len(part) && !utf8.RuneStart(part[n]) {
			n--
		}
		// A quote is longer than its text: lines are indented, and invisible characters are spelled out.
		if quote = turn.Quote(part[:n]); len(quote) <= most || n < utf8.UTFMax {
			return quote, int64(len(part) - n)
		}
	}
}

const readArtifactAbout = `Reads the text of an artifact of this house, such as the whole output of a command or a file. An image (PNG, JPEG,
GIF, WebP) is shown if you can see. Other artifacts are only described.`

const readArtifactSchema = `{"type":"object","properties":{
	"artifact_id":{"type":"string","minLength":1},
	"offset":{"type":"integer","minimum":0,"description":"where to begin, in bytes; leave it out for the beginning"},
	"limit":{"type":"integer","minimum":1,"maximum":20480,"description":"how many bytes to read at most"}},"required":["artifact_id"],"additionalProperties":false}`

type artifactArguments struct {
	Artifact string `json:"artifact_id"`
	Offset   int64  `json:"offset"`
	Limit    int    `json:"limit"`
}

func (d *Dispatcher) readArtifactForBot(ctx context.Context, c turn.Call, a artifactArguments) (turn.Result, error) {
	if d.config.Artifacts == nil {
		return turn.Result{}, fault.New(fault.Precondition, "this server stores no artifacts", "go on without it")
	}
	got, err := d.config.Artifacts.Get(ctx, c.Scope, a.Artifact)
	if err != nil {
		return turn.Result{}, err
	}
	if !got.HasBytes {
		return turn.Result{Text: describedArtifact(got) + "; its bytes are stored elsewhere\n" + turn.Quote(strings.TrimSpace(got.ByteRef+"\n"+got.ExternalID))}, nil
	}
	if a.Offset >= got.Size && got.Size > 0 {
		return turn.Result{}, fault.Newf(fault.OutOfRange, "use a smaller offset", "the artifact has %d bytes", got.Size)
	}
	content, err := d.config.Artifacts.Open(ctx, got)
	if err != nil {
		return turn.Result{}, err
	}
	defer content.Close() //nolint:errcheck // it was only read
	if a.Offset == 0 {
		if shown, isImage := shownImage(content, got); isImage {
			return shown, nil
		}
	}
	return artifactPage(content, got, a)
}

func describedArtifact(a artifact.Artifact) string {
	return fmt.Sprintf("artifact %s, %s, %d bytes, named “%s”", a.ID, a.Kind, a.Size, turn.Name(a.Label))
}

// shownImage shows an artifact that is an image.
func shownImage(content *artifact.Content, of artifact.Artifact) (_ turn.Result, isImage bool) {
	info, err := picture.Look(content)
	if err != nil {
		return turn.Result{}, false
	}
	w, h := picture.Fits(info.Width, info.Height)
	return turn.Result{
		Text:   fmt.Sprintf("%s; an image of %d × %d pixels, shown with %d × %d", describedArtifact(of), info.Width, info.Height, w, h),
		Images: []entry.PiBlock{{Type: entry.PiImageBlock, ArtifactID: of.ID, MIMEType: info.Type, Width: w, Height: h}},
	}, true
}

// artifactPage shows a part of an artifact's text.
func artifactPage(content *artifact.Content, of artifact.Artifact, a artifactArguments) (turn.Result, error) {
	about := describedArtifact(of)
	part, err := readPart(content, a.Offset, min(max(a.Limit, 0), shownPage/2))
	if err != nil {
		return turn.Result{}, err
	}
	if !isText(part) {
		return turn.Result{Text: about + "; there is no text at this offset, so it is not shown"}, nil
	}
	quote, rest := textPage(string(part), 0, shownPage)
	end := a.Offset + int64(len(part)) - rest
	if about += fmt.Sprintf("; bytes %d to %d", a.Offset, end); end < of.Size {
		about += fmt.Sprintf(", continue with offset %d", end)
	}
	return turn.Result{Text: about + "\n" + quote}, nil
}

// readPart reads bytes of an artifact from an offset on. It drops incomplete characters at both ends.
func readPart(content *artifact.Content, offset int64, most int) ([]byte, error) {
	if most == 0 {
		most = shownPage / 2
	}
	if _, err := content.Seek(offset, io.SeekStart); err != nil {
		return nil, err
	}
	part := make([]byte, most+utf8.UTFMax)
	n, err := io.ReadFull(content, part)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) || content.Err() != nil && !errors.Is(content.Err(), io.EOF) {
		return nil, errors.Join(err, content.Err())
	}
	if part = part[:n]; n > most {
		for part = part[:most+1]; len(part) > 1 && !utf8.RuneStart(part[len(part)-1]); {
			part = part[:len(part)-1]
		}
		part = part[:len(part)-1]
	}
	return part, nil
}

// isText reports whether bytes are text: UTF-8 without NUL, apart from a character that is cut at the beginning.
func isText(part []byte) bool {
	for i := 0; i < utf8.UTFMax-1 && len(part) > 0 && !utf8.RuneStart(part[0]); i++ {
		part = part[1:]
	}
	return utf8.Valid(part) && !bytes.ContainsRune(part, 0)
}

// head describes an entry and its author in one line, as bots read it. The name comes last, so that it cannot change the
// meaning of the words before it.
func head(e entry.Entry, author string) string {
	kind := e.Type
	if c, ok := entry.As[entry.Chat](e); ok && c.Confined {
		kind += ", said with a thread's token, so data and not a request,"
	}
	return fmt.Sprintf("entry %d, %s, %s by %s", e.Seq, e.Time.UTC().Format(time.RFC3339), kind, turn.Name(author))
}

// names returns a function that returns authors' names, and looks up each one once.
func (d *Dispatcher) names(ctx context.Context, c turn.Call) func(author string) (string, error) {
	known := map[string]string{"": "arbe"}
	return func(author string) (string, error) {
		if name, ok := known[author]; ok {
			return name, nil
		}
		p, err := d.config.Bots.Person(ctx, c.Scope, author)
		if err != nil && fault.CodeOf(err) != fault.NotFound {
			return "", err
		}
		known[author] = p.Name
		if p.Name == "" {
			known[author] = "arbe"
		}
		return known[author], nil
	}
}
