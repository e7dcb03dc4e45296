package turn

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/picture"
)

// This file shows models the files that chats name, and the images that tools return. A transcript has only their names
// and sizes, from the entries; their contents are loaded only for a request that is sent. Names and contents are
// foreign.

const (
	// shownFile and shownFiles limit, in bytes, how much of a text file, and of all text files of a chat, a model reads
	// with the chat.
	shownFile, shownFiles = 16 << 10, 48 << 10
	// maxImages is the largest number of images in a request. Beyond 20, Anthropic accepts only smaller images.
	maxImages = 20
	// imageTokens is about the largest number of tokens of an image, and imageShare the share of a request's tokens for
	// images.
	imageTokens, imageShare = 1600, 0.5
)

// sight returns what the model of the turn can see.
func (r *run) sight() (s sight) {
	has := func(tool string) bool {
		return slices.ContainsFunc(r.tools, func(t Tool) bool { return t.Name == tool })
	}
	s.reads, s.runs = has(entry.ReadArtifactTool), has(entry.RunCommandTool)
	if _, blind := r.blind.Load(r.modelKey(r.modelID)); r.Files != nil && !blind && model.Sees(r.endpoint, r.modelID) {
		s.images = min(max(int(float64(r.budget())*imageShare/imageTokens), 1), maxImages)
	}
	return s
}

// withFiles returns a message with the files that belong to it.
func (t *transcript) withFiles(m entry.PiUser, files []entry.Attachment) entry.PiUser {
	if len(files) == 0 {
		return m
	}
	texts := int64(0)
	for _, f := range files {
		if f.IsText() {
			texts++
		}
	}
	m.Content = slices.Clone(m.Content)
	for _, f := range files {
		about, more := t.described(f, texts)
		if t.sight.runs {
			about += "; commands find it at " + f.InSandbox()
			if f.Size > entry.AtOnce {
				about += ", where it may come later because it is large"
			}
		}
		m.Content = append(append(m.Content, entry.PiText(note(about).Text())), more...)
	}
	return m
}

// described describes a file, and returns what the model sees of it. texts is the number of texts that share the room.
func (t *transcript) described(f entry.Attachment, texts int64) (about string, more []entry.PiBlock) {
	about = fmt.Sprintf("“%s”, %s, artifact %s", Name(f.Title()), entry.FileSize(f.Size), Name(f.ArtifactID))
	switch {
	case f.IsImage() && t.sight.images == 0:
		about = "an image is attached, which this model cannot see: " + about
	case f.IsImage():
		about = "an image is attached: " + about
		w, h := picture.Fits(f.Width, f.Height)
		if w != f.Width || h != f.Height {
			about += fmt.Sprintf("; it has %d × %d pixels, and is shown with %d × %d", f.Width, f.Height, w, h)
		}
		more = append(more, entry.PiBlock{Type: entry.PiImageBlock, ArtifactID: f.ArtifactID, MIMEType: f.MediaType, Width: w, Height: h})
	case f.IsText():
		about = "a file is attached: " + about
		most := min(shownFile, shownFiles/texts)
		if f.Size > most {
			about += fmt.Sprintf("; its first %d bytes follow", most)
			if t.sight.reads {
				about += ", and " + entry.ReadArtifactTool + " reads the rest"
			}
		}
		more = append(more, entry.PiBlock{Type: entry.PiTextBlock, ArtifactID: f.ArtifactID, Size: min(f.Size, most)})
	default:
		about = "a file is attached, which is not shown: " + about + ", " + Name(f.MediaType)
	}
	return about, more
}

// seen returns the blocks of a tool's result, and replaces those that the model cannot see.
func (t *transcript) seen(blocks []entry.PiBlock) []entry.PiBlock {
	for i, b := range blocks {
		if b.Type == entry.PiImageBlock && t.sight.images == 0 {
			blocks[i] = entry.PiText("(this model cannot see the image)")
		}
	}
	return blocks
}

// limit keeps the last images of some messages. It drops earlier ones in groups of half the limit, so that between two
// drops all requests begin alike.
func (s sight) limit(list []entry.PiMessage) {
	if s.images == 0 {
		return
	}
	n := 0
	for _, m := range list {
		for _, b := range blocksOf(m) {
			if b.Type == entry.PiImageBlock {
				n++
			}
		}
	}
	if n <= s.images {
		return
	}
	step := (s.images + 1) / 2
	drop := (n - s.images + step - 1) / step * step
	each(list, func(b entry.PiBlock) entry.PiBlock {
		if b.Type != entry.PiImageBlock || drop == 0 {
			return b
		}
		drop--
		words := "this image is not shown any more, because later ones are"
		if s.reads && b.ArtifactID != "" {
			words += "; " + entry.ReadArtifactTool + " shows it"
		}
		return entry.PiText(note(words).Text())
	})
}

// blocksOf returns the blocks of a message to a model.
func blocksOf(m entry.PiMessage) []entry.PiBlock {
	switch m := m.(type) {
	case entry.PiUser:
		return m.Content
	case entry.PiToolResult:
		return m.Content
	}
	return nil
}

// each replaces blocks of messages to a model. It changes the list, and not the messages' blocks themselves.
func each(list []entry.PiMessage, to func(entry.PiBlock) entry.PiBlock) {
	for i, m := range list {
		blocks := slices.Clone(blocksOf(m))
		for n := range blocks {
			blocks[n] = to(blocks[n])
		}
		switch m := m.(type) {
		case entry.PiUser:
			m.Content = blocks
			list[i] = m
		case entry.PiToolResult:
			m.Content = blocks
			list[i] = m
		}
	}
}

// show asks a model, with the files that the request names. If a model is not in the catalog and refuses images, it is
// asked without them, now and later.
func (r *run) show(ctx context.Context, id string, request model.Request, f func(model.Delta)) (model.Answer, error) {
	if r.Pace != nil {
		request.Pace = func(n int) func() { return r.Pace(ctx, r.turn.House, n) }
	}
	shown := slices.Clone(request.Messages)
	bytes, err := r.load(ctx, id, shown)
	if err != nil {
		return model.Answer{}, err
	}
	request.Messages = shown
	if bytes > 0 {
		held := min(bytes*imageCopies, imageMemory)
		if err := r.images.Acquire(ctx, held); err != nil {
			return model.Answer{}, err
		}
		defer r.images.Release(held)
	}
	answer, err := r.model.Stream(ctx, r.endpoint, id, request, f)
	failed, isModel := errors.AsType[*model.Error](err)
	if bytes == 0 || !isModel || failed.Kind != model.BadRequest || model.Lookup(r.endpoint.Provider, id).Known {
		return answer, err
	}
	r.blind.Store(r.modelKey(id), true)
	each(request.Messages, func(b entry.PiBlock) entry.PiBlock {
		if b.Type == entry.PiImageBlock {
			return entry.PiText(note("this model cannot see the image").Text())
		}
		return b
	})
	return r.model.Stream(ctx, r.endpoint, id, request, f)
}

// modelKey identifies a model of a house's server.
type modelKey struct {
	server
	model string
}

func (r *run) modelKey(id string) modelKey { return modelKey{r.server(), id} }

// load reads the files that messages name. A text replaces a file that cannot be read, unless a retry may help. bytes
// is the size of the images.
func (r *run) load(ctx context.Context, id string, list []entry.PiMessage) (bytes int64, err error) {
	sees := model.Sees(r.endpoint, id) // the gate may use another model than the bot's
	each(list, func(b entry.PiBlock) entry.PiBlock {
		if err != nil || b.ArtifactID == "" || b.Data != "" {
			return b
		}
		if r.Files == nil {
			return entry.PiText(note("it is not shown here").Text())
		}
		if b.Type == entry.PiImageBlock && !sees {
			return entry.PiText(note("this model cannot see the image").Text())
		}
		loaded, size, failed := r.loadOne(ctx, b)
		if failed == nil {
			bytes += size
			return loaded
		}
		if ctx.Err() != nil {
			err = ctx.Err()
			return b
		}
		return entry.PiText(note(r.unread(ctx, b, failed)).Text())
	})
	return bytes, err
}

// loadOne reads a file. size is that of an image.
func (r *run) loadOne(ctx context.Context, b entry.PiBlock) (loaded entry.PiBlock, size int64, err error) {
	if b.Type != entry.PiImageBlock {
		text, err := r.Files.Text(ctx, r.scope(), b.ArtifactID, b.Size)
		if err != nil {
			return b, 0, err
		}
		return entry.PiText(Quote(r.redactor.String(text))), 0, nil
	}
	image, err := r.Files.Image(ctx, r.scope(), b.ArtifactID)
	if err != nil {
		return b, 0, err
	}
	return entry.PiBlock{Type: entry.PiImageBlock, Data: base64.StdEncoding.EncodeToString(image.Data), MIMEType: image.Type, Width: image.Width, Height: image.Height}, int64(len(image.Data)), nil
}

// unread returns why a file is not shown.
func (r *run) unread(ctx context.Context, b entry.PiBlock, err error) string {
	for _, known := range []error{picture.ErrNone, picture.ErrDamaged, picture.ErrHuge} {
		if errors.Is(err, known) {
			return "the image cannot be shown: it " + known.Error()
		}
	}
	if fault.CodeOf(err) == fault.NotFound {
		return "the file is gone: it was deleted"
	}
	r.Logger.WarnContext(ctx, "a file that belongs to a message cannot be read", "artifact", b.ArtifactID, "error", fault.From(err).Detail())
	return "the file cannot be read now"
}
