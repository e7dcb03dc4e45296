package run

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// This file keeps the full results and arguments of tool calls whose log entry has only a part. The runner sends the text
// first and then the entry. The server writes the artifact's name into the entry itself, because a runner could name
// artifacts that are not its own.

// wholeKind returns the kind of the artifact with the full text of this id.
func wholeKind(id string) string {
	if entry.IsCallArguments(id) {
		return "arguments"
	}
	return "result"
}

// keptID returns the id for creating a run's artifact. It derives from the entry's id, so a retry stores nothing twice.
func keptID(threadID, entryID string) string {
	sum := sha256.Sum256([]byte("run\x00" + threadID + "\x00" + entryID))
	return hex.EncodeToString(sum[:16])
}

// KeepWhole stores the full text of a result that a run will post, or of a call's arguments. id is the entry id of the result,
// or the [entry.CallArgumentsID] of the call. A second call for the same id does nothing, even with another text.
//
// Errors: a [fault.Forbidden] if the run is over, a [fault.Invalid] for an empty text or an id of another run, and a
// [fault.Exhausted] if the run or the house has reached its limit.
func (r *Runs) KeepWhole(ctx context.Context, by Poster, id string, text []byte) error {
	p, err := r.posts.of(ctx, r, by)
	if err != nil {
		return err
	}
	if entry.RunOf(id) != entry.RunID(by.Epoch) || len(id) > 200 {
		return fault.Newf(fault.Invalid, "use that of the result", "whole: it is not the id of an entry of run %d", by.Epoch)
	}
	if len(text) == 0 {
		return fault.New(fault.Invalid, "whole: the text is empty", "post the result without it")
	}
	if r.config.Artifacts == nil {
		return fault.New(fault.Invalid, "whole: this server keeps no artifacts", "post the result without it")
	}
	if !p.mayKeep(int64(len(text)), r.config.Limits) {
		return fault.Newf(fault.Exhausted, "post the result without it", "the run may write %d entries and %d bytes", r.config.Limits.Entries, r.config.Limits.Bytes)
	}
	epoch, kind := strconv.FormatInt(by.Epoch, 10), wholeKind(id)
	_, err = r.config.Artifacts.Create(ctx, db.Scope{House: by.House, Agent: by.Agent}, artifact.Draft{
		ID: keptID(by.Thread, id), Kind: kind, Label: kind + " of run " + epoch + ".txt", ExternalID: id, MIMEType: "text/plain; charset=utf-8", Thread: by.Thread, Run: epoch,
	}, bytes.NewReader(p.redactor.Bytes(text)))
	if fault.CodeOf(err) == fault.Exists {
		return nil
	}
	return err
}

// nameKept adds to results and answers the names of the artifacts with their full texts.
func (r *Runs) nameKept(ctx context.Context, by Poster, drafts []entry.Draft) error {
	if r.config.Artifacts == nil {
		return nil
	}
	for i, d := range drafts {
		if !bytes.Contains(d.Payload, []byte(`"wholeBytes"`)) {
			continue
		}
		var fields map[string]json.RawMessage
		var err error
		switch d.Type {
		case entry.PiToolResult{}.Type():
			fields, err = r.nameResult(ctx, by, d)
		case entry.PiAssistant{}.Type():
			fields, err = r.nameArguments(ctx, by, d)
		}
		if err == nil && fields != nil {
			drafts[i].Payload, err = json.Marshal(fields)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// nameResult returns the fields of a result that names its artifact; none if nothing was kept of it.
func (r *Runs) nameResult(ctx context.Context, by Poster, d entry.Draft) (fields map[string]json.RawMessage, err error) {
	result, ok := entry.As[entry.PiToolResult](entry.Entry{Type: d.Type, Payload: d.Payload})
	if !ok || result.Details == nil || result.Details.WholeBytes == 0 {
		return nil, nil
	}
	kept, err := r.keptAs(ctx, by, d.ID)
	if err != nil || kept.ID == "" {
		return nil, err
	}
	result.Details.ArtifactID, result.Details.WholeBytes = kept.ID, kept.Size
	if err := json.Unmarshal(d.Payload, &fields); err != nil {
		return nil, err
	}
	fields["details"], err = json.Marshal(result.Details)
	return fields, err
}

// nameArguments returns the fields of an answer whose calls name the artifacts with their arguments.
func (r *Runs) nameArguments(ctx context.Context, by Poster, d entry.Draft) (fields map[string]json.RawMessage, err error) {
	if err := json.Unmarshal(d.Payload, &fields); err != nil {
		return nil, err
	}
	var blocks []map[string]json.RawMessage
	if json.Unmarshal(fields["content"], &blocks) != nil {
		return nil, nil //nolint:nilerr // the content is a text
	}
	answer, _ := entry.As[entry.PiAssistant](entry.Entry{Type: d.Type, Payload: d.Payload})
	n := 0
	for i, b := range answer.Content {
		if b.Type != entry.PiCallBlock {
			continue
		}
		if b.WholeBytes > 0 {
			kept, err := r.keptAs(ctx, by, entry.CallArgumentsID(d.ID, n))
			if err != nil {
				return nil, err
			}
			if kept.ID != "" {
				blocks[i]["artifactId"], _ = json.Marshal(kept.ID)   // a string
				blocks[i]["wholeBytes"], _ = json.Marshal(kept.Size) // a number
			}
		}
		n++
	}
	fields["content"], err = json.Marshal(blocks)
	return fields, err
}

// keptAs returns the artifact that [Runs.KeepWhole] stored under this id, or none if it refused the text.
func (r *Runs) keptAs(ctx context.Context, by Poster, id string) (artifact.Artifact, error) {
	kept, err := r.config.Artifacts.Get(ctx, db.Scope{House: by.House, Agent: by.Agent}, db.IDFor(by.House, keptID(by.Thread, id)))
	if fault.CodeOf(err) == fault.NotFound {
		return artifact.Artifact{}, nil
	}
	return kept, err
}
