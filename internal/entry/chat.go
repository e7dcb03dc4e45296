package entry

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"unicode"

	"github.com/arbe-dev/arbe/internal/fault"
)

// MaxAttachments is how many files a chat may name.
const MaxAttachments = 10

// Chat is a message of a person or a bot.
type Chat struct {
	// Text is Markdown. It may contain mentions such as @handle. It may be empty if there are attachments.
	Text string `json:"text"`
	// ReplyTo is the id of the entry, if any, that it answers.
	ReplyTo string `json:"reply_to,omitempty"`
	// Think is how hard the answering bots think; empty for their own setting. Only chats of people have it. If the person
	// wrote it as a directive, Text still contains the directive; see [ThinkDirective].
	Think Effort `json:"think,omitempty"`
	// Turn summarizes the bot's turn in its answer; nil in every other chat.
	Turn *TurnSummary `json:"turn,omitempty"`
	// Confined reports that its author used a credential for this thread only. It wakes no bot, because bots act in the whole
	// house. Only arbe itself sets it; see [Confine].
	Confined bool `json:"confined,omitempty"`
	// Queue asks a coding agent that could take the message during its current work to get it after that work. The author
	// chooses it; [QueueTimed] changes it while the message waits.
	Queue bool `json:"queue,omitempty"`
	// Via says how it was said, if not in a browser. Only arbe itself sets it; see [Through].
	Via *Via `json:"via,omitempty"`
	// Attachments are the files that belong to the message.
	Attachments []Attachment `json:"attachments,omitempty"`
	// Run marks it as the result of a child thread: a coding agent's last words in a run. It wakes no bot, and only arbe
	// itself sets it. Nil in every other chat.
	Run *RunSummary `json:"run,omitempty"`
}

// Attachment is a file of a chat. Its bytes are in an artifact, which may be deleted later. The author gives the ArtifactID;
// arbe fills in the rest when it writes the entry.
type Attachment struct {
	ArtifactID string `json:"artifact_id"`
	// Name is the artifact's label when the entry was written; empty if it had none.
	Name string `json:"name,omitempty"`
	// MediaType is the type that arbe detected, whatever the artifact declares: "image/png", "image/jpeg", "image/gif" or
	// "image/webp"; "text/…" for UTF-8; a type such as "application/pdf" that the first bytes show; or
	// "application/octet-stream".
	MediaType string `json:"media_type,omitempty"`
	// Size is the number of bytes.
	Size int64 `json:"size,omitempty"`
	// Width and Height are the size of an image in pixels; 0 if it is not an image, or is too large to show.
	Width  int `json:"width,omitempty"`
	Height int `json:"height,omitempty"`
}

// IsImage reports whether it is an image that can be shown.
func (a Attachment) IsImage() bool { return a.Width > 0 && strings.HasPrefix(a.MediaType, "image/") }

// IsText reports whether it is text, judging by its beginning.
func (a Attachment) IsText() bool { return strings.HasPrefix(a.MediaType, "text/") }

// Title returns the name of the file on one line. It is never empty.
func (a Attachment) Title() string {
	return cmp.Or(strings.Join(strings.Fields(a.Name), " "), "file "+a.ArtifactID)
}

// FilesFolder is the folder, in the home directory of a sandbox, with the files of the messages of its threads.
const FilesFolder = "files"

// FileName returns the name of an artifact in [FilesFolder]: its label as far as a name needs no quotes in a shell, with the
// id, so that no two files have the same name: "plan-k3v9x2mq.pdf".
func FileName(label, id string) string {
	name := strings.Map(func(c rune) rune {
		if c == '.' || c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c) {
			return c
		}
		return '-'
	}, label)
	ext := path.Ext(name)
	if len(ext) > 16 || strings.ContainsAny(ext, "-_") {
		ext = ""
	}
	stem := strings.Trim(Clip(strings.TrimSuffix(name, ext), maxFileName), "-._…")
	return cmp.Or(stem, "file") + "-" + id + strings.TrimSuffix(ext, ".")
}

// maxFileName limits the bytes of a label in a [FileName].
const maxFileName = 100

// AtOnce is the size up to which the use of a sandbox waits for a file of a message. Larger files come in the background.
const AtOnce = 16 << 20

// InSandbox returns where the file is in the sandbox of its thread: "~/files/plan-k3v9x2mq.pdf". If it is not larger than
// [AtOnce], it is nearly always there from the first command that begins after the message.
func (a Attachment) InSandbox() string {
	return path.Join("~", FilesFolder, FileName(a.Name, a.ArtifactID))
}

// Plain describes the file in a line: "[file: plan.pdf, 12 kB, artifact k3v9x2mq]".
func (a Attachment) Plain() string {
	return fmt.Sprintf("[file: %s, %s, artifact %s]", a.Title(), FileSize(a.Size), a.ArtifactID)
}

// FileSize formats a number of bytes: "812 bytes", "12 kB", "3.4 MB".
func FileSize(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d bytes", n)
	case n < 999_500:
		return fmt.Sprintf("%.0f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}

// Attach returns the draft of a chat with other attachments. The given draft must be valid ([Check]).
func Attach(d Draft, list []Attachment) Draft {
	var fields map[string]json.RawMessage // keeps the other fields, even unknown ones
	if json.Unmarshal(d.Payload, &fields) != nil || fields == nil {
		return d
	}
	fields["attachments"], _ = json.Marshal(list) // cannot fail for plain values
	var text bytes.Buffer
	to := json.NewEncoder(&text)
	to.SetEscapeHTML(false) // it is not HTML
	_ = to.Encode(fields)   // cannot fail, because it was JSON
	d.Payload = bytes.TrimSuffix(text.Bytes(), []byte("\n"))
	return d
}

// Confine returns the draft of a chat as [Chat.Confined], and other drafts unchanged. The given draft must be valid
// ([Check]).
func Confine(d Draft) Draft {
	var fields map[string]json.RawMessage // keeps the other fields, even unknown ones
	if d.Type != (Chat{}).Type() || json.Unmarshal(d.Payload, &fields) != nil || fields == nil {
		return d
	}
	if _, has := fields["confined"]; !has {
		end := bytes.LastIndexByte(d.Payload, '}')
		d.Payload = append(bytes.Clone(d.Payload[:end]), `,"confined":true}`...)
		return d
	}
	fields["confined"] = json.RawMessage("true")
	d.Payload, _ = json.Marshal(fields) // cannot fail, because it was JSON
	return d
}

func (Chat) Type() string { return "chat" }

// parts: a chat with a summary ends the turn that wrote it.
func (c Chat) parts(e Entry) []Part {
	parts := []Part{{Work{ChatWork, e.ID}, Opens}}
	if c.Run != nil {
		parts = append(parts, Part{Work{ChildWork, c.Run.ThreadID}, Updates})
	}
	if c.Turn == nil {
		return parts
	}
	parts = append(parts, Part{Work{TurnWork, c.Turn.TurnID}, Completes})
	for _, asked := range c.Turn.Answers {
		parts = append(parts, Part{Work{ChatWork, asked}, Updates})
	}
	return parts
}

// Validate requires a text of at most [MaxText] bytes that is not blank, or attachments, and a known effort.
func (c Chat) Validate() error {
	switch {
	case strings.TrimSpace(c.Text) == "" && len(c.Attachments) == 0:
		return fault.New(fault.Invalid, "text: it is empty", "write something")
	case len(c.Text) > MaxText:
		return fault.Newf(fault.Exhausted, "shorten it, or put it into a file", "text: it may have at most %d bytes, and this has %d", MaxText, len(c.Text)).WithReason(fault.TooLarge)
	case len(c.ReplyTo) > maxID:
		return fault.New(fault.Invalid, "reply_to: it is not the id of an entry", "use the id of an entry of this thread")
	case len(c.Attachments) > MaxAttachments:
		return fault.Newf(fault.Exhausted, "send the others with another message", "attachments: a message may have %d files, and this has %d", MaxAttachments, len(c.Attachments)).WithReason(fault.TooLarge)
	}
	seen := map[string]bool{}
	for i, a := range c.Attachments {
		switch {
		case a.ArtifactID == "" || len(a.ArtifactID) > 64:
			return fault.Newf(fault.Invalid, "use the id of an artifact of this thread", "attachments[%d].artifact_id: it is not the id of an artifact", i)
		case seen[a.ArtifactID]:
			return fault.Newf(fault.Invalid, "name it once", "attachments[%d]: the artifact is named twice", i)
		}
		seen[a.ArtifactID] = true
	}
	if e, err := ParseEffort(string(c.Think)); err != nil {
		return err
	} else if e != c.Think {
		return fault.New(fault.Invalid, "think: it is not in lowercase", "use "+EffortWords)
	}
	return nil
}

// Words returns the text as a model reads it: without a directive that Think already expresses.
func (c Chat) Words() string {
	if e, rest, _, err := ThinkDirective(c.Text); err == nil && e == c.Think && e != EffortDefault {
		return rest
	}
	return c.Text
}

// Plain returns the text, and a line for each attachment.
func (c Chat) Plain() string { return c.with(Attachment.Plain) }

// Told returns the text for a coding agent: as Plain, with where the files are in the agent's sandbox.
func (c Chat) Told() string {
	return c.with(func(a Attachment) string {
		later := ""
		if a.Size > AtOnce {
			later = " (it is large, so it may come there later)"
		}
		return fmt.Sprintf("[file: %s, %s, %s%s]", a.Title(), FileSize(a.Size), a.InSandbox(), later)
	})
}

// with returns the text, and a line for each attachment.
func (c Chat) with(line func(Attachment) string) string {
	if len(c.Attachments) == 0 {
		return c.Text
	}
	var lines []string
	if strings.TrimSpace(c.Text) != "" {
		lines = append(lines, c.Text)
	}
	for _, a := range c.Attachments {
		lines = append(lines, line(a))
	}
	return strings.Join(lines, "\n")
}
