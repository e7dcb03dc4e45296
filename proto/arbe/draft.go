package arbe

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// Draft reads from deltas the text that a bot's model is writing in one step of a turn. The zero Draft is empty. Use a new
// Draft after the step's entry. It is not safe for concurrent use.
type Draft struct {
	// attempt is the id of the deltas that are read. It distinguishes the model's calls for the same step.
	attempt string
	// at is the number of bytes that have arrived in deltas, and line the beginning of a line whose end has not arrived.
	at   int64
	line []byte
	// missed reports that deltas are missing, so the text cannot continue until the step is complete.
	missed bool

	// block is the block of text that is being written. space is the white space at the end of the text so far. It is held
	// back, because the text of the entry ends without it.
	block int
	space string
	text  string
}

// TurnOf returns the id of the turn in which a bot's model writes the text in a delta. It is empty if the delta has something
// else, such as the output of a command.
func TurnOf(d *arbev1.Delta) string {
	step, _, isDraft := strings.Cut(d.GetEntryId(), "~")
	rest, isTurn := strings.CutPrefix(step, "turn.")
	if !isDraft || !isTurn {
		return ""
	}
	turn, _, _ := strings.Cut(rest, ".")
	return turn
}

// Begun reports whether there is text.
func (d *Draft) Begun() bool { return d.text != "" }

// Add returns the text that a delta adds; empty if it adds none. again reports that the model was cut off and starts over, so
// the text until now no longer counts. The delta must be from a turn; see [TurnOf].
func (d *Draft) Add(delta *arbev1.Delta) (text string, again bool) {
	if delta.GetEntryId() != d.attempt {
		again = d.text != ""
		*d = Draft{attempt: delta.GetEntryId()}
	}
	offset, data := delta.GetOffset(), delta.GetData()
	if offset > d.at {
		d.missed = true
	}
	known := d.at - offset
	if d.missed || known >= int64(len(data)) {
		return "", again
	}
	d.at += int64(len(data)) - known
	d.line = append(d.line, data[known:]...)
	for {
		line, rest, complete := bytes.Cut(d.line, []byte("\n"))
		if !complete {
			return text, again
		}
		var c chunk
		if err := json.Unmarshal(line, &c); err == nil && c.Kind == "text" {
			text += d.write(c)
		}
		d.line = rest
	}
}

// chunk is a pi.chunk, which is one line of a delta.
type chunk struct {
	Kind  string `json:"kind"`
	Block int    `json:"block"`
	Text  string `json:"text"`
}

// write returns the text that a chunk adds.
func (d *Draft) write(c chunk) string {
	if c.Block != d.block && d.text != "" {
		d.space += "\n\n"
	}
	d.block = c.Block
	more := d.space + c.Text
	if d.text == "" {
		more = strings.TrimLeftFunc(more, unicode.IsSpace)
	}
	text := strings.TrimRightFunc(more, unicode.IsSpace)
	d.space = more[len(text):]
	d.text += text
	return text
}

// Rest returns the part of the text of the step's entry that Add has not returned. again reports that rest is the whole text,
// because it differs from the text in the deltas.
func (d *Draft) Rest(entry string) (rest string, again bool) {
	entry = strings.TrimSpace(entry)
	rest, known := strings.CutPrefix(entry, d.text)
	if !known {
		return entry, true
	}
	return rest, false
}
