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

// files reads the files that chats name, for models. It keeps images as models take them, because each step of a turn needs
// them again. It is safe for concurrent use.
type files struct {
	artifacts *artifact.Artifacts

	mu    sync.Mutex
	kept  map[fileKey]*list.Element // of a fitted
	order list.List                 // the last used ones first
	bytes int
	// busy has for each house whose images are made to fit a place for one of them, and how many calls use it.
	busy map[string]*place
}

type place struct {
	taken chan struct{}
	users int
}

// fileKey names the content of an artifact. It has the house, because a house must not find out what another one has.
type fileKey struct{ house, content string }

// fitted is an image in the size that models take, or the error that [picture.Fit] returned for it.
type fitted struct {
	key   fileKey
	image picture.Image
	err   error
}

// Image returns an artifact as an image that models take.
func (f *files) Image(ctx context.Context, scope db.Scope, id string) (picture.Image, error) {
	got, err := f.artifacts.Get(ctx, scope, id) // each time, because it may have been deleted
	if err != nil {
		return picture.Image{}, err
	}
	key := fileKey{scope.House, got.ByteRef}
	if kept, ok := f.find(key); ok {
		return kept.image, kept.err
	}
	// One image of a house at a time, because [picture.Fit] does few at a time for all houses.
	leave, err := f.enter(ctx, scope.House)
	if err != nil {
		return picture.Image{}, err
	}
	defer leave()
	if kept, ok := f.find(key); ok { // meanwhile
		return kept.image, kept.err
	}
	content, err := f.artifacts.Open(ctx, got)
	if err != nil {
		return picture.Image{}, err
	}
	defer content.Close() //nolint:errcheck // nothing more is wanted from it
	image, err := picture.Fit(ctx, content)
	switch {
	case err == nil, errors.Is(err, picture.ErrNone), errors.Is(err, picture.ErrDamaged), errors.Is(err, picture.ErrHuge):
		f.keep(fitted{key, image, err}) // what the bytes are does not change
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
	defer content.Close() //nolint:errcheck // nothing more is wanted from it
	text, err := io.ReadAll(io.LimitReader(content, most))
	return string(text), err
}

// enter waits until no other image of a house is made to fit. The caller calls leave.
func (f *files) enter(ctx context.Context, house string) (leave func(), err error) {
	f.mu.Lock()
	if f.busy == nil {
		f.busy = map[string]*place{}
	}
	at := f.busy[house]
	if at == nil {
		at = &place{taken: make(chan struct{}, 1)}
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

// keep keeps an image, and forgets those that were not used for the longest time.
func (f *files) keep(made fitted) {
	const entrySize = 1 << 10 // what keeping one costs besides its bytes
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
