package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
)

// Append adds drafts at the end of a log. It returns the id of the log's stream and one entry per draft; for a draft
// whose id the log already has, that is the existing entry. It locks the log until the transaction ends, whose commit
// notifies all servers. The caller or [Store.In] explains its error.
func Append(ctx context.Context, tx pgx.Tx, ref Ref, drafts []entry.Draft) (stream int64, entries []entry.Entry, err error) {
	p := query.AppendEntriesParams{Stream: ref.Name}
	for _, d := range drafts {
		p.Ids = append(p.Ids, d.ID)
		p.Authors = append(p.Authors, d.Author)
		p.Types = append(p.Types, d.Type)
		p.Payloads = append(p.Payloads, string(d.Payload))
	}
	rows, err := queries.AppendEntries(ctx, tx, p)
	if err != nil {
		return 0, nil, err
	}
	entries = make([]entry.Entry, len(rows))
	for i, r := range rows {
		stream = r.StreamID
		entries[i] = entry.Entry{Seq: r.Seq, ID: r.ID, StreamID: ref.Name, Author: r.Author, Type: r.Type, Payload: r.Payload, Time: r.Ts.UTC()}
	}
	return stream, entries, nil
}
