package transcript

import (
	"context"
	"strings"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/markup"
)

// Chat is a message of a person or a bot.
type Chat struct {
	Thread string
	Seq    int64
	// Deleted reports that its author deleted it. Nothing else of it is shown then. Edits is how often it was edited.
	Deleted bool
	Edits   int
	// HTML is the text. Rest is the number of its bytes that are not shown.
	HTML  string
	Rest  int
	Files []File

	// ReplyTo is the chat that it replies to, unless that chat is directly above.
	ReplyTo *Reply
	// Turn is the turn, if any, that gave this answer. Summary describes its work, and Cut reports that the answer was cut
	// off.
	Turn     string
	Summary  *entry.TurnSummary
	Cut      bool
	Question Question
	Thought  *Thought
	// Fate says what happened to it while it waited for a coding agent. It is nil for other chats.
	Fate *Fate
}

// File is a file that belongs to a chat.
type File struct {
	Artifact, Name, Size string
	// InSandbox is where it is in the thread's sandbox.
	InSandbox string
	// Width and Height are the size at which an image is shown, and 0 for other files.
	Width, Height int
	// Gone reports that the artifact was deleted, Expired that the retention of the house did it.
	Gone, Expired bool
}

// Reply is the chat that another one replies to. Seq is 0 if its position is unknown; the reply then has no text.
type Reply struct {
	Thread       string
	Seq          int64
	Author, Text string
}

// Question is the question of a turn. It can be edited and asked again if its position is known.
type Question struct {
	Thread, ID string
	Seq        int64
}

// Thought is a model's thinking, folded. It is shown as plain text.
type Thought struct {
	Thread string
	Seq    int64
	Text   string
	// Rest is the number of its bytes that are not shown. Open reports that the reader asked to see all of it.
	Rest int
	Open bool
}

func chat(ctx context.Context, k *known, e entry.Entry, c entry.Chat) Body {
	became := k.states[e.ID]
	if became.GetDeleted() {
		return Chat{Thread: k.thread, Seq: e.Seq, Deleted: true}
	}
	v := Chat{Thread: k.thread, Seq: e.Seq, Files: k.filesOf(ctx, c)}
	if became.GetText() != "" {
		c.Text, v.Edits = became.Text, max(int(became.Edits), 1) // a fork does not know how often it was edited
	}
	text := c.Text
	long := isLong
	if c.Turn != nil || c.Run != nil {
		long = isVeryLong
	}
	if !k.unfolded && long(text) {
		text = beginning(text)
		v.Rest = len(c.Text) - len(text)
	}
	v.HTML = markup.Markdown(text, k.effort)
	if c.Turn != nil {
		v.Turn, v.Summary, v.Cut = c.Turn.TurnID, c.Turn, c.Turn.Cut
		v.Question, v.Thought = k.questionOf(c.ReplyTo), k.thoughtOf(e, c.Turn.Thinking)
	}
	if k.driver != "" && e.Author != k.driver {
		v.Fate = k.fateOf(e.ID)
	}
	if c.ReplyTo == "" || c.ReplyTo == k.lastChat {
		return v
	}
	v.ReplyTo = &Reply{}
	if to := k.chat(c.ReplyTo); to != nil && to.Seq < e.Seq {
		said, _ := entry.SeenAs[entry.Chat](to)
		v.ReplyTo = &Reply{Thread: k.thread, Seq: to.Seq, Author: k.people.ByID(to.Author).Name, Text: k.present(c.ReplyTo, said.Text)}
	}
	return v
}

// present returns the present text of a message, shortened.
func (k *known) present(id, text string) string {
	switch became := k.states[id]; {
	case became.GetDeleted():
		return "a deleted message"
	case became.GetText() != "":
		return entry.OneLine(became.Text, 80)
	}
	return text
}

func (k *known) questionOf(id string) Question {
	q := Question{Thread: k.thread, ID: id}
	if asked := k.chat(id); asked != nil {
		q.Seq = asked.Seq
	}
	return q
}

// thoughtOf describes a model's thinking before an entry, or returns nil if the model showed no thinking.
func (k *known) thoughtOf(e entry.Entry, text string) *Thought {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil
	}
	v := &Thought{Thread: k.thread, Seq: e.Seq, Text: text}
	switch long := len(text) > maxShown; {
	case long && k.unfolded:
		v.Open = true
	case long:
		v.Text = strings.ToValidUTF8(text[:maxShown], "")
		v.Rest = len(text) - len(v.Text)
	}
	return v
}

const (
	// shownWidth and shownHeight limit the size of an image in the log, in pixels. shownImage limits the bytes of an image
	// that a page loads for it.
	shownWidth, shownHeight, shownImage = 480, 320, 20 << 20
	// maxLookups limits how many artifacts are looked up for a piece of the log, to find out which were deleted. The others
	// are assumed to exist. A browser shows the names of images that it cannot load.
	maxLookups = 40
)

// filesOf returns the files of a chat.
func (k *known) filesOf(ctx context.Context, c entry.Chat) (files []File) {
	for _, a := range c.Attachments {
		f := File{Artifact: a.ArtifactID, Name: entry.Clip(a.Title(), MaxWord), Size: entry.FileSize(a.Size), InSandbox: a.InSandbox()}
		if a.IsImage() && a.Size <= shownImage {
			scale := min(1, shownWidth/float64(a.Width), shownHeight/float64(a.Height))
			f.Width, f.Height = max(int(float64(a.Width)*scale), 1), max(int(float64(a.Height)*scale), 1)
		}
		if k.lookups < maxLookups {
			k.lookups++
			_, err := k.artifacts.GetArtifact(ctx, &arbev1.GetArtifactRequest{Id: a.ArtifactID})
			f.Gone = connect.CodeOf(err) == connect.CodeNotFound
			f.Expired = arbev1.ErrorInfoOf(err).Reason == string(fault.Expired)
		}
		files = append(files, f)
	}
	return files
}
