package transcript

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/markup"
)

// This kind cannot be shown. It tests the effect of such a kind on a page.
func init() {
	kinds["test.panics"] = kind{said, func(context.Context, *known, entry.Entry) Body { panic("a defect") }}
}

// nobody is a [People] that knows no agents.
type nobody struct{}

func (nobody) Address(string) string { return "" }

func (nobody) Meet(context.Context, ...string) error { return nil }
func (nobody) ByID(string) Author                    { return Author{} }

func TestAnEntryThatCannotBeShownIsShownAsItIsStored(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	from := Source{People: nobody{}, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	rows, err := New(from, &arbev1.Thread{Id: "thread"}).Rows(t.Context(), []entry.Entry{
		{Seq: 1, ID: "1", Type: "chat", Payload: []byte(`{"text":"before"}`)},
		{Seq: 2, ID: "2", Type: "test.panics", Payload: []byte(`{"text":"as it is"}`)},
		{Seq: 3, ID: "3", Type: "chat", Payload: []byte(`{"text":"after"}`)},
	}, 3)
	if err != nil {
		t.Fatal(err)
	}
	if before, ok := rows[0].Body.(Chat); !ok || !strings.Contains(before.HTML, "before") {
		t.Errorf("before it is %+v", rows[0].Body)
	}
	if want := (Generic{"test.panics", `{"text":"as it is"}`}); rows[1].Body != want {
		t.Errorf("it is %+v", rows[1].Body)
	}
	if after, ok := rows[2].Body.(Chat); !ok || !strings.Contains(after.HTML, "after") {
		t.Errorf("after it is %+v", rows[2].Body)
	}
	if !strings.Contains(log.String(), "a defect") {
		t.Errorf("the log says %s", log.String())
	}
}

func TestLiveOutputThatCannotBeRenderedIsGivenUp(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	l := NewLive(Source{People: nobody{}, Logger: slog.New(slog.NewTextHandler(&log, nil))}, &arbev1.Thread{Id: "thread"})
	l.screens["c.result"] = &markup.LiveOutput{} // a screen with a defect: it has no rows
	for range 2 {
		l.Delta(t.Context(), &arbev1.Delta{EntryId: "c.result", Data: []byte("text")})
		if err := l.Paint(t.Context(), func(Change) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "live output cannot be rendered"); n != 1 {
		t.Errorf("the log says it %d times: %s", n, log.String())
	}
}
