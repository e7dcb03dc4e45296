package rpc

import (
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// defaultPage is the default number of rows in a page.
const defaultPage = 50

// pageSize returns the requested number of rows, or the default.
func pageSize(asked int32) int {
	if asked == 0 {
		return defaultPage
	}
	return int(asked)
}

// list describes a list that has pages: its name, and the form of its rows' ids.
type list struct {
	name string
	id   *lazyregexp.Regexp
}

var (
	epoch   = lazyregexp.New(`^[1-9][0-9]{0,17}$`)
	shortID = lazyregexp.New(`^[A-Za-z0-9_-]{1,64}$`)
	handle  = lazyregexp.New(`^[a-z0-9-]{1,39}$`)
	agentID = lazyregexp.New(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

// The lists. Each has its own name, so that one list does not accept the token of another.
var (
	houseList       = list{"houses", shortID}
	memberList      = list{"members", agentID}
	auditList       = list{"audit events", shortID}
	inviteList      = list{"invites", shortID}
	threadList      = list{"threads", shortID}
	approvalList    = list{"approvals", shortID}
	environmentList = list{"environments", shortID}
	sandboxList     = list{"sandboxes", shortID}
	keyList         = list{"keys", shortID}
	artifactList    = list{"artifacts", shortID}
	botList         = list{"bots", handle}
	runList         = list{"runs", epoch}
)

// bookmark is a position in a list: the last returned row. The zero bookmark is the start of the list.
type bookmark struct {
	List   string
	Pinned time.Time `json:",omitzero"` // only for threads: their lists begin with pinned ones
	Time   time.Time
	ID     string
}

// cursor returns the position in a list that is ordered by time and id.
func (b bookmark) cursor() db.Cursor { return db.Cursor{Time: b.Time, ID: b.ID} }

// open returns the position that a page token stands for. The page begins after it.
func (l list) open(token string) (b bookmark, err error) {
	if token == "" {
		return bookmark{}, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(text, &b)
	}
	// A forged token may contain ids and times that Postgres cannot read. That must not look like a failure of the server.
	if err != nil || b.List != l.name || !l.id.MatchString(b.ID) || b.Time.UTC().Year() < 1 || b.Pinned.UTC().Year() < 1 {
		return bookmark{}, fault.New(fault.Invalid, "page_token: this is not a token of this list",
			"leave it out to start at the first page").Because(err)
	}
	return b, nil
}

// cut returns the first size rows and the token of the next page. Callers read one row more than fits on a page. Without that
// row, this is the last page, and the token is empty.
func cut[Row any](l list, rows []Row, size int, place func(Row) bookmark) ([]Row, string) {
	if len(rows) <= size {
		return rows, ""
	}
	rows = rows[:size]
	return rows, l.token(place(rows[size-1]))
}

// token returns the token of the page that begins after a position.
func (l list) token(b bookmark) string {
	b.List = l.name
	text, err := json.Marshal(b)
	if err != nil {
		panic(err) // impossible for this struct
	}
	return base64.RawURLEncoding.EncodeToString(text)
}
