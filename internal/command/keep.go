package command

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
)

const (
	// storeTimeout limits storing an output, because the result waits for it. storeTimeoutOnStop is the limit on a
	// stopping server.
	storeTimeout       = 2 * time.Minute
	storeTimeoutOnStop = 5 * time.Second
)

var (
	// errAlreadyEnded reports that a command's result is already in the log. It rolls back the artifact, to which no
	// result would refer.
	errAlreadyEnded = errors.New("another server has written this command's result")
	// errNotKept reports that an artifact was refused. A retry would not help.
	errNotKept = errors.New("the artifact is refused")
)

// keep stores the command's complete output. If that fails, it logs the error, and the result has no artifact.
func (w *work) keep(ctx context.Context) *kept {
	args, s := w.job.Args, w.out.spool
	// It does not use ctx, because the output of a cancelled command or a stopping server is stored too.
	within := storeTimeout
	if jobs.Stopped(ctx) {
		within = storeTimeoutOnStop
	}
	ctx, cancel := context.WithTimeout(w.config.Jobs.Results(), within)
	defer cancel()
	content, err := s.content()
	var up artifact.Upload
	if err == nil {
		up, err = w.config.Artifacts.Upload(ctx, db.Scope{House: args.House}, content)
	}
	if err != nil {
		w.notKept(ctx, err)
		return nil
	}
	if s.full {
		w.config.Logger.WarnContext(ctx, "only the first part of an output is stored: the outputs of running commands use up spool_size",
			"kept", up.Size, "printed", s.printed)
	}
	line := firstOf(strings.ToValidUTF8(w.command.Line(), "\uFFFD"), 100)
	metadata, _ := json.Marshal(map[string]any{"command": line, "output_bytes": s.printed})
	return &kept{Upload: up, part: up.Size < s.printed, Draft: artifact.Draft{
		ID: strings.ToLower(rand.Text()), Kind: artifact.Output, Label: "output of " + entry.Visible(line, func(rune) string { return " " }) + ".txt", ExternalID: args.Command,
		MIMEType: "text/plain; charset=utf-8", Thread: args.Thread, Metadata: metadata,
	}}
}

// firstOf returns the first n characters of a text's first line.
func firstOf(line string, n int) string {
	line, _, _ = strings.Cut(line, "\n")
	if utf8.RuneCountInString(line) > n {
		line = string([]rune(line)[:n]) + "…"
	}
	return line
}

func (w *work) notKept(ctx context.Context, err error) {
	w.config.Logger.WarnContext(ctx, "the complete output of a command is not stored", "error", fault.From(err).Detail())
}

// endKept is [work.end] with an artifact for the command's output, created in the same transaction and
// referred to by the result.
func (w *work) endKept(ctx context.Context) error {
	args, r, k := w.job.Args, w.ended, w.kept
	scope := db.Scope{House: args.House}
	err := w.end(ctx, func(ctx context.Context, tx pgx.Tx) error {
		made, err := w.config.Artifacts.CreateTx(ctx, tx, scope, k.Draft, &k.Upload)
		if refusal, ok := errors.AsType[*fault.Error](err); ok {
			return fmt.Errorf("%w: %s", errNotKept, refusal.Detail())
		} else if err != nil {
			return err
		}
		r.ArtifactID, r.ArtifactBytes, r.ArtifactPart = made.ID, made.Size, k.part
		entries, err := w.config.Log.AppendTx(ctx, tx, args.log(), result(args.Command, r))
		if err != nil {
			return err
		}
		if there, _ := entry.As[entry.CommandResult](entries[0]); there.ArtifactID != made.ID {
			return errAlreadyEnded
		}
		return nil
	})
	if err != nil {
		w.config.Artifacts.Discard(w.config.Jobs.Results(), scope, k.Upload)
	}
	return err
}
