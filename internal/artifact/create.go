package artifact

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// Draft describes an artifact to create. Its fields are those of [Artifact]; each may be empty.
type Draft struct {
	// ID is chosen by the caller and makes a retry harmless. The artifact's id is derived from it, because a caller who
	// chose real ids could find out which ids other houses have; see [db.IDFor]. If it is empty, the database generates
	// an id.
	ID string
	// Kind defaults to [File].
	Kind                        string
	Label, ExternalID, MIMEType string
	// ByteRef says where the bytes are if arbe does not store them.
	ByteRef               string
	Thread, Run, Resource string
	// Metadata is a JSON object of at most 8 KiB. Defaults to an empty one.
	Metadata json.RawMessage
}

const maxMetadata = 8 << 10

var (
	idForm   = lazyregexp.New(`^([a-z0-9]{8,32}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$`)
	kindForm = lazyregexp.New(`^[a-z][a-z0-9.-]{0,39}$`)
)

// check fills in a draft's defaults and validates it.
func (d *Draft) check() error {
	if d.Kind == "" {
		d.Kind = File
	}
	if len(bytes.TrimSpace(d.Metadata)) == 0 {
		d.Metadata = json.RawMessage("{}")
	}
	var err error
	if d.Label, err = entry.Name("label", d.Label, 200); err != nil {
		return err
	}
	for _, f := range []struct {
		name, value string
		most        int
	}{
		{"external_id", d.ExternalID, 1000}, {"mime_type", d.MIMEType, 200}, {"byte_ref", d.ByteRef, 1000},
		{"run_id", d.Run, 64}, {"resource_id", d.Resource, 64}, {"thread_id", d.Thread, 64},
	} {
		switch {
		case utf8.RuneCountInString(f.value) > f.most:
			return fault.Newf(fault.Invalid, "shorten it", "%s: it has more than %d characters", f.name, f.most)
		case !utf8.ValidString(f.value) || strings.ContainsRune(f.value, 0):
			return fault.Newf(fault.Invalid, "send it as UTF-8 text without NUL bytes", "%s: it is not valid UTF-8 text", f.name)
		}
	}
	if d.ID != "" && !idForm.MatchString(d.ID) {
		return fault.New(fault.Invalid, "id: it has a form that cannot be chosen", "use a UUID, or 8 to 32 lower-case letters and digits, or leave it out")
	}
	if !kindForm.MatchString(d.Kind) {
		return fault.New(fault.Invalid, "kind: it is not a word", "use at most 40 lower-case letters, digits, dots and dashes, such as file")
	}
	if d.MIMEType != "" {
		if _, _, err := mime.ParseMediaType(d.MIMEType); err != nil {
			return fault.New(fault.Invalid, "mime_type: it is not a media type", "write it as text/plain, or leave it out").Because(err)
		}
	}
	var object map[string]any
	if len(d.Metadata) > maxMetadata || json.Unmarshal(d.Metadata, &object) != nil || object == nil || bytes.Contains(d.Metadata, []byte(`\u0000`)) {
		return fault.Newf(fault.Invalid, `write it as {"key": "value"}`, "metadata: it is not a JSON object of at most %d bytes, without NUL characters", maxMetadata)
	}
	return nil
}

// idIn returns the id of the draft's artifact in a house; empty lets the database generate one.
func (d Draft) idIn(house string) string {
	if d.ID == "" {
		return ""
	}
	return db.IDFor(house, d.ID)
}

// Create creates an artifact in the scope's house with all bytes of content, as [Artifacts.CreateTx] does; if content
// is nil, the artifact has no bytes. Content is streamed. Exceeding a limit is a [fault.Exhausted]; if the content is
// larger than one artifact may be, its cause is [ErrTooLarge]. If Create fails, nothing is stored.
func (a *Artifacts) Create(ctx context.Context, scope db.Scope, d Draft, content io.Reader) (made Artifact, err error) {
	if err := d.check(); err != nil {
		return Artifact{}, err
	}
	// A retry is recognized before the upload, so that its content is not stored again.
	if id := d.idIn(scope.House); id != "" {
		if there, err := a.Get(ctx, scope, id); err == nil {
			return a.again(there, d, content)
		} else if fault.CodeOf(err) != fault.NotFound {
			return Artifact{}, err
		}
	}
	var up *Upload
	if content != nil {
		staged, err := a.Upload(ctx, scope, content)
		if err != nil {
			return Artifact{}, err
		}
		up = &staged
	}
	err = a.DB.In(ctx, scope, func(tx pgx.Tx) error {
		made, err = a.CreateTx(ctx, tx, scope, d, up)
		return err
	})
	if err != nil && up != nil {
		a.Discard(ctx, scope, *up)
	}
	return made, err
}

// again handles a draft whose id already exists. It reads the content, because a retry must have the same, but does not
// store it again.
func (a *Artifacts) again(there Artifact, d Draft, content io.Reader) (Artifact, error) {
	if !there.is(d) || there.HasBytes != (content != nil) {
		return Artifact{}, idTaken()
	}
	if content != nil {
		m := a.measure(content, a.MaxSize)
		if _, err := io.Copy(io.Discard, m); err != nil {
			return Artifact{}, m.err
		}
		if there.ByteRef != "sha256:"+hex.EncodeToString(m.hash.Sum(nil)) {
			return Artifact{}, idTaken()
		}
	}
	return there, nil
}

// CreateTx creates an artifact in the scope's house in the caller's transaction, with the bytes of an upload, or
// without bytes if up is nil. An artifact of a thread is deleted with the thread's log, which forks of the thread keep.
// The same draft with the same ID returns the existing artifact; a different draft with that ID is a [fault.Exists]. If
// the transaction fails, the caller must discard the upload. Call CreateTx before an append to a log in the same
// transaction: otherwise two transactions could take their locks in different orders and deadlock.
func (a *Artifacts) CreateTx(ctx context.Context, tx pgx.Tx, scope db.Scope, d Draft, up *Upload) (Artifact, error) {
	if err := d.check(); err != nil {
		return Artifact{}, err
	}
	if up != nil && d.ByteRef != "" {
		return Artifact{}, fault.New(fault.Invalid, "byte_ref: arbe stores the bytes of this artifact itself", "send either bytes or a byte_ref")
	}
	var stream *int64
	if d.Thread != "" {
		id, err := a.q.StreamOfThread(ctx, tx, d.Thread)
		if errors.Is(err, pgx.ErrNoRows) {
			return Artifact{}, fault.New(fault.NotFound, "there is no such thread", "list the threads with: arbe thread list")
		}
		if err != nil {
			return Artifact{}, err
		}
		stream = &id
	}
	held := ""
	if up != nil {
		var err error
		if held, err = a.holdTx(ctx, tx, scope.House, *up); err != nil {
			return Artifact{}, err
		}
	}
	chosen := d.idIn(scope.House)
	id, err := a.q.InsertArtifact(ctx, tx, query.InsertArtifactParams{
		ID: chosen, HouseID: scope.House, Kind: d.Kind, Label: db.Null(d.Label), ExternalID: db.Null(d.ExternalID), MimeType: db.Null(d.MIMEType),
		ByteRef: db.Null(d.ByteRef), BlobID: db.Null(held), AgentID: db.Null(scope.Agent), ThreadID: db.Null(d.Thread), StreamID: stream,
		RunID: db.Null(d.Run), ResourceID: db.Null(d.Resource), Metadata: d.Metadata,
	})
	taken := errors.Is(err, pgx.ErrNoRows)
	if taken {
		id = chosen
	} else if err != nil {
		return Artifact{}, err
	}
	made, err := a.getTx(ctx, tx, id)
	if taken && (fault.CodeOf(err) == fault.NotFound || err == nil && !(made.is(d) && made.blob == held)) {
		return Artifact{}, idTaken() // by a different artifact, or by one that is being deleted
	}
	return made, err
}

// holdTx makes an upload the content of an artifact that the transaction creates, and returns the id of its blob: an
// existing one if the house already has the same content.
func (a *Artifacts) holdTx(ctx context.Context, tx pgx.Tx, house string, up Upload) (id string, err error) {
	// Otherwise two transactions could each find enough quota and exceed it together.
	if err := a.q.LockHouseBlobs(ctx, tx, house); err != nil {
		return "", err
	}
	id, err = a.q.LockBlobOf(ctx, tx, house, up.sum)
	if err == nil {
		_, err = a.q.DiscardUpload(ctx, tx, up.key.ID)
		return id, err
	} else if !errors.Is(err, pgx.ErrNoRows) {
		return "", err
	}
	use, err := a.q.BlobUse(ctx, tx, house)
	if err != nil {
		return "", err
	}
	if up.Size > a.left(use) {
		return "", a.full()
	}
	rows, err := a.q.FinishBlob(ctx, tx, up.sum, &up.Size, up.key.ID)
	if err == nil && rows == 0 {
		err = fault.New(fault.Aborted, "the upload took too long and was deleted", "send it again")
	}
	return up.key.ID, err
}

func idTaken() *fault.Error {
	return fault.New(fault.Exists, "this id already belongs to a different artifact", "choose another id, or leave it out")
}

// is reports whether the artifact matches a draft, apart from its bytes.
func (a Artifact) is(d Draft) bool {
	var ours, theirs any
	if json.Unmarshal(a.Metadata, &ours) != nil || json.Unmarshal(d.Metadata, &theirs) != nil || !reflect.DeepEqual(ours, theirs) {
		return false
	}
	return a.Kind == d.Kind && a.Label == d.Label && a.ExternalID == d.ExternalID && a.MIMEType == d.MIMEType &&
		a.Thread == d.Thread && a.Run == d.Run && a.Resource == d.Resource && (a.HasBytes || a.ByteRef == d.ByteRef)
}
