package dispatch

import (
	"container/list"
	"context"
	"errors"
	"io"
	"sync"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/picture"
)

// maxKept limits the bytes of the images that a server keeps between the steps of turns.
const maxKept = 64 << 20

// files reads the files that chats name, for models. It caches images in the form that models take, because each step of a
// turn needs them again. It is safe for concurrent use.
type files struct {
	artifacts *artifact.Artifacts

	mu    sync.Mutex
	kept  map[fileKey]*list.Element // of a fitted
	order list.List                 // most recently used first
	bytes int
	// busy holds, for each house with an image being resized, a lock and the number of calls that use it.
	busy map[string]*slot
}

type slot struct {
	taken chan struct{}
	users int
}

// fileKey identifies the content of an artifact. It includes the house, because a house must not find out what another one
// has.
type fileKey struct{ house, content string }

// fitted is an image resized for models, or the error that [picture.Fit] returned for it.
type fitted struct {
	key   fileKey
	image picture.Image
	err   error
}

// Image returns an artifact as an image for models.
func (f *files) Image(ctx context.Context, scope db.Scope, id string) (picture.Image, error) {
	got, err := f.artifacts.Get(ctx, scope, id) // every time, because it may have been deleted
	if err != nil {
		return picture.Image{}, err
	}
	key := fileKey{scope.House, got.ByteRef}
	if kept, ok := f.find(key); ok {
		return kept.image, kept.err
	}
	// One image per house at a time, because [picture.Fit] resizes few at a time over all houses.
	leave, err := f.enter(ctx, scope.House)
	if err != nil {
		return picture.Image{}, err
	}
	defer leave()
	if kept, ok := f.find(key); ok { // another call was faster
		return kept.image, kept.err
	}
	content, err := f.artifacts.Open(ctx, got)
	if err != nil {
		return picture.Image{}, err
	}
	defer content.Close() //nolint:errcheck // it was only read
	image, err := picture.Fit(ctx, content)
	switch {
	case err == nil, errors.Is(err, picture.ErrNone), errors.Is(err, picture.ErrDamaged), errors.Is(err, picture.ErrHuge):
		f.keep(fitted{key, image, err}) // the same bytes always give the same result
	}
	return image, err
}

// Text returns the first bytes of an artifact.
func (f *files) Text(ctx context.Context, scope db.Scope, id string, most int64) (string, error) {
	got, err := f.artifacts.Get(ctx, scope, id)
	if err != nil {
		return "", err
	}
	content, err := f.artifacts.Open(ctx, got)
	if err != nil {
		return "", err
	}
	defer content.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(content, most))
	return string(text), err
}

// enter waits until no other image of a house is being resized. The caller calls leave.
func (f *files) enter(ctx context.Context, house string) (leave func(), err error) {
	f.mu.Lock()
	if f.busy == nil {
		f.busy = map[string]*slot{}
	}
	at := f.busy[house]
	if at == nil {
		at = &slot{taken: make(chan struct{}, 1)}
		f.busy[house] = at
	}
	at.users++
	f.mu.Unlock()
	done := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if at.users--; at.users == 0 {
			delete(f.busy, house)
		}
	}
	select {
	case at.taken <- struct{}{}:
		return func() { <-at.taken; done() }, nil
	case <-ctx.Done():
		done()
		return nil, ctx.Err()
	}
}

func (f *files) find(key fileKey) (fitted, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, ok := f.kept[key]
	if !ok {
		return fitted{}, false
	}
	f.order.MoveToFront(at)
	return at.Value.(fitted), true
}

// keep caches an image, and evicts the least recently used ones.
func (f *files) keep(made fitted) {
	const entrySize = 1 << 10 // the overhead per image
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kept == nil {
		f.kept = map[fileKey]*list.Element{}
	}
	if _, there := f.kept[made.key]; there {
		return
	}
	f.kept[made.key] = f.order.PushFront(made)
	f.bytes += entrySize + len(made.image.Data)
	for f.bytes > maxKept {
		last := f.order.Back()
		old := f.order.Remove(last).(fitted)
		delete(f.kept, old.key)
		f.bytes -= entrySize + len(old.image.Data)
	}
}
