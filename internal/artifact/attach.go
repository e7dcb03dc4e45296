package artifact

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/picture"
)

// sniffed is how many bytes at the beginning of a file show whether it is text.
const sniffed = 64 << 10

// binary is the media type of bytes of which nothing else is known.
const binary = "application/octet-stream"

// Attach returns the artifacts with these ids as attachments of a message of a thread. It reads their bytes, so do not
// call it in a transaction; the transaction that writes the message calls [Artifacts.AttachTx]. With own, only the
// thread's artifacts are accepted; without it, also artifacts of the house that belong to no thread. Any other is a
// [fault.NotFound], which does not reveal whether it exists.
func (a *Artifacts) Attach(ctx context.Context, scope db.Scope, thread string, ids []string, own bool) ([]entry.Attachment, error) {
	var found []Artifact
	err := a.DB.In(ctx, scope, func(tx pgx.Tx) (err error) {
		found, err = a.attachableTx(ctx, tx, scope.House, thread, ids, own)
		return err
	})
	if err != nil {
		return nil, err
	}
	list := make([]entry.Attachment, len(found))
	for i, f := range found {
		if list[i], err = a.attachment(ctx, f); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// AttachTx repeats the checks of [Artifacts.Attach] in the caller's transaction, and records that these are files of the
// thread.
func (a *Artifacts) AttachTx(ctx context.Context, tx pgx.Tx, house, thread string, ids []string, own bool) error {
	if _, err := a.attachableTx(ctx, tx, house, thread, ids, own); err != nil {
		return err
	}
	return a.q.AttachFiles(ctx, tx, house, thread, ids)
}

// Unplaced returns up to most files that were not yet written to a sandbox, the latest first: those of a thread, of its parent
// and of the thread that it was forked from.
func (a *Artifacts) Unplaced(ctx context.Context, scope db.Scope, thread, sandbox string, most int) (list []Artifact, err error) {
	err = a.DB.In(ctx, scope, func(tx pgx.Tx) error {
		rows, err := a.q.UnplacedFiles(ctx, tx, query.UnplacedFilesParams{HouseID: scope.House, ThreadID: thread, SandboxID: sandbox, Most: int32(most)})
		list = nil
		for _, row := range rows {
			list = append(list, fromRow(row.Artifact, row.Sha256, row.Size))
		}
		return err
	})
	return list, err
}

// Placed records that a file was written to a sandbox.
func (a *Artifacts) Placed(ctx context.Context, scope db.Scope, sandbox, id string) error {
	return a.DB.In(ctx, scope, func(tx pgx.Tx) error {
		return a.q.PlaceFile(ctx, tx, scope.House, sandbox, id)
	})
}

func (a *Artifacts) attachableTx(ctx context.Context, tx pgx.Tx, house, thread string, ids []string, own bool) ([]Artifact, error) {
	rows, err := a.q.AttachableArtifacts(ctx, tx, query.AttachableArtifactsParams{Ids: ids, HouseID: house, ThreadID: &thread, OwnOnly: own})
	if err != nil {
		return nil, err
	}
	byID := map[string]Artifact{}
	for _, row := range rows {
		byID[row.Artifact.ID] = fromRow(row.Artifact, row.Sha256, row.Size)
	}
	list := make([]Artifact, len(ids))
	for i, id := range ids {
		there, ok := byID[id]
		if !ok {
			return nil, fault.Newf(fault.NotFound, "store the file as an artifact of this thread first", "attachments: this thread has no file %.64q", id)
		}
		list[i] = there
	}
	return list, nil
}

// attachment describes an artifact from its bytes.
func (a *Artifacts) attachment(ctx context.Context, f Artifact) (entry.Attachment, error) {
	at := entry.Attachment{ArtifactID: f.ID, Name: f.Label, Size: f.Size}
	content, err := a.Open(ctx, f)
	if err != nil {
		return at, err
	}
	defer content.Close() //nolint:errcheck // all needed bytes were read
	info, err := picture.Look(content)
	switch {
	case err == nil:
		at.MediaType, at.Width, at.Height = info.Type, info.Width, info.Height
		return at, nil
	case errors.Is(err, picture.ErrHuge):
		at.MediaType = info.Type
		return at, nil
	case !errors.Is(err, picture.ErrNone) && !errors.Is(err, picture.ErrDamaged):
		return at, err
	}
	if _, err = content.Seek(0, io.SeekStart); err != nil {
		return at, err
	}
	head := make([]byte, min(f.Size, sniffed))
	if _, err := io.ReadFull(content, head); err != nil {
		return at, err
	}
	at.MediaType = typeOf(head, f.MIMEType)
	return at, nil
}

// typeOf returns the media type of bytes that are not an image, from their beginning. The declared type only chooses
// among text types.
func typeOf(head []byte, declared string) string {
	if isText(head) {
		if kind, _, err := mime.ParseMediaType(declared); err == nil && strings.HasPrefix(kind, "text/") {
			return kind
		}
		return "text/plain"
	}
	kind, _, _ := strings.Cut(http.DetectContentType(head), ";")
	if strings.HasPrefix(kind, "text/") || strings.HasPrefix(kind, "image/") {
		return binary
	}
	return kind
}

// isText reports whether the beginning of a file is text: UTF-8 without zero bytes. The last character may be
// incomplete.
func isText(head []byte) bool {
	for i := 1; i < utf8.UTFMax && i <= len(head); i++ {
		if c := head[len(head)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(head[len(head)-i:]) {
				head = head[:len(head)-i]
			}
			break
		}
	}
	return utf8.Valid(head) && bytes.IndexByte(head, 0) < 0
}
