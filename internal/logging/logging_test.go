package logging_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/arbe-dev/arbe/internal/logging"
)

// line returns the fields of one line of a JSON log.
func line(t *testing.T, write func(*slog.Logger)) map[string]any {
	t.Helper()
	var log bytes.Buffer
	write(logging.New(&log, logging.JSON, slog.LevelInfo))
	said := map[string]any{}
	if err := json.Unmarshal(log.Bytes(), &said); err != nil {
		t.Fatalf("%s: %v", log.String(), err)
	}
	return said
}

func TestALineSaysWhatItIsAbout(t *testing.T) {
	t.Parallel()
	ctx := logging.With(t.Context(), slog.String("request", "r1"))
	t.Run("with the attributes of the context", func(t *testing.T) {
		said := line(t, func(l *slog.Logger) { l.InfoContext(ctx, "hello", "status", 200) })
		if said["request"] != "r1" || said["status"] != 200.0 || said["msg"] != "hello" || said["level"] != "INFO" {
			t.Errorf("it says %v", said)
		}
	})
	t.Run("with attributes that inner code added", func(t *testing.T) {
		ctx := logging.With(ctx)
		inner, cancel := context.WithCancel(ctx)
		defer cancel()
		logging.Add(inner, slog.String("thread", "t1"))
		logging.Add(inner, slog.String("thread", "t2"))
		if said := line(t, func(l *slog.Logger) { l.WarnContext(ctx, "late") }); said["thread"] != "t2" || said["request"] != "r1" {
			t.Errorf("it says %v", said)
		}
	})
	t.Run("without attributes of another request", func(t *testing.T) {
		logging.Add(logging.With(ctx), slog.String("thread", "t3"))
		logging.Add(t.Context(), slog.String("thread", "t4"))
		if said := line(t, func(l *slog.Logger) { l.InfoContext(ctx, "hello") }); said["thread"] != nil {
			t.Errorf("it says %v", said)
		}
	})
	t.Run("each key once, and the line's own value wins", func(t *testing.T) {
		var log bytes.Buffer
		logging.New(&log, logging.Text, slog.LevelInfo).With("server", "s").InfoContext(ctx, "hello", "request", "own")
		if got := log.String(); strings.Count(got, "request=") != 1 || !strings.Contains(got, "request=own") || !strings.Contains(got, "server=s") {
			t.Errorf("it says %s", got)
		}
	})
	t.Run("at its level or above", func(t *testing.T) {
		var log bytes.Buffer
		logging.New(&log, logging.Text, slog.LevelWarn).InfoContext(ctx, "hello")
		if log.Len() > 0 {
			t.Errorf("it says %s", log.String())
		}
	})
}

func TestSubjectsAreSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	ctx := logging.With(t.Context())
	logger := logging.New(&bytes.Buffer{}, logging.Text, slog.LevelError)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			logging.Add(ctx, slog.String("thread", "t"))
			logger.ErrorContext(ctx, "hello")
			_ = logging.Value(ctx, "thread")
		})
	}
	all.Wait()
	if logging.Value(ctx, "thread") != "t" || logging.Value(ctx, "house") != "" {
		t.Error("the context does not hold what was added")
	}
}
