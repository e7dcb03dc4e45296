package transcript

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// slowLog is a log of one message. A read of it takes until end is closed.
type slowLog struct {
	end   chan struct{}
	mu    sync.Mutex
	tail  int64
	reads int
}

func (l *slowLog) List(ctx context.Context, _ *arbev1.ListRequest) (*arbev1.ListResponse, error) {
	l.mu.Lock()
	l.reads++
	res := &arbev1.ListResponse{Tail: l.tail, Entries: []*arbev1.Entry{{Seq: 1, Id: "said", Type: "chat", Payload: `{"text":"shipped"}`,
		State: &arbev1.EntryState{Reactions: []*arbev1.Reaction{{Emoji: fmt.Sprint("as of ", l.tail)}}}}}}
	l.mu.Unlock()
	select {
	case <-l.end:
		return res, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// shows shows a reaction on many live pages at once, and returns the states that they show, each once.
func shows(t *testing.T, log *slowLog, pages []*Live, seq int64) map[string]int {
	t.Helper()
	var mu sync.Mutex
	states := map[string]int{}
	var all sync.WaitGroup
	for _, page := range pages {
		all.Go(func() {
			reacted := entry.NewDraft("", "bob", entry.ChatReacted{EntryID: "said", Seq: 1, Emoji: "👍"})
			_, err := page.Take(t.Context(), entry.Entry{Seq: seq, ID: fmt.Sprint(seq), Type: reacted.Type, Payload: reacted.Payload, Author: "bob"}, func(c Change) error {
				mu.Lock()
				defer mu.Unlock()
				states[c.(Reacted).Reactions[0].Emoji]++
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	synctest.Wait()
	close(log.end)
	all.Wait()
	log.end = make(chan struct{})
	return states
}

// However many pages show a message, a reaction to it costs one read, and reactions that follow each other quickly share it.
func TestPagesShareTheReadOfAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &slowLog{end: make(chan struct{}), tail: 3}
		from := Source{Log: log, Messages: &Messages{}, People: nobody{}}
		pages := make([]*Live, 100)
		for i := range pages {
			pages[i] = NewLive(from, &arbev1.Thread{Id: "thread"})
		}
		// The entries 2 and 3 are in the log when the first page reads.
		for seq := int64(2); seq <= 3; seq++ {
			if got := shows(t, log, pages, seq); got["as of 3"] != 100 || log.reads != 1 {
				t.Errorf("at entry %d, %d reads showed %v", seq, log.reads, got)
			}
		}
		log.tail = 4
		if got := shows(t, log, pages, 4); got["as of 4"] != 100 || log.reads != 2 {
			t.Errorf("later, %d reads showed %v", log.reads, got)
		}
	})
}

// A page does not fail because the one that read for it was closed.
func TestAPageReadsAgainAfterAnotherOneLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, messages := &slowLog{end: make(chan struct{}), tail: 2}, &Messages{}
		ctx, leave := context.WithCancel(t.Context())
		var left, stayed error
		var got *arbev1.Entry
		go func() { _, left = messages.At(ctx, log, "thread", 1, 2) }()
		synctest.Wait()
		go func() { got, stayed = messages.At(t.Context(), log, "thread", 1, 2) }()
		synctest.Wait()
		leave()
		synctest.Wait()
		close(log.end)
		synctest.Wait()
		if !errors.Is(left, context.Canceled) || stayed != nil || got.GetId() != "said" || log.reads != 2 {
			t.Errorf("after %d reads: %v; %v, %v", log.reads, left, got, stayed)
		}
	})
}
