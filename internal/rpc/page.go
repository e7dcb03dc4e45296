package rpc

import (
	"encoding/base64"
	"encoding/json"
	"regexp"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
)

// defaultPage is how many rows a page has when the caller does not say.
const defaultPage = 50

// pageSize is the number of rows asked for, with its default.
func pageSize(asked int32) int {
	if asked == 0 {
		return defaultPage
	}
	return int(asked)
}

// list is something that is given out in pages: its name, and what the ids of its rows look like.
type list struct {
	name string
	id   *regexp.Regexp
}

var (
	shortID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	agentID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

// The lists.
var (
	houseList       = list{"houses", shortID}
	memberList      = list{"members", agentID}
	inviteList      = list{"invites", shortID}
	threadList      = list{"threads", shortID}
	environmentList = list{"environments", shortID}
	sandboxList     = list{"sandboxes", shortID}
	keyList         = list{"keys", shortID}
	artifactList    = list{"artifacts", shortID}
)

// bookmark is a place in a list: its last row that was given out. The zero bookmark is the list's start.
type bookmark struct {
	List   string
	Pinned time.Time `json:",omitzero"` // for threads
	Time   time.Time
	ID     string
}

// cursor is the place for lists ordered by time and id.
func (b bookmark) cursor() db.Cursor { return db.Cursor{Time: b.Time, ID: b.ID} }

// open reads a page's token: the place it starts behind.
func (l list) open(token string) (b bookmark, err error) {
	if token == "" {
		return bookmark{}, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(text, &b)
	}
	// Whoever forged it might still hold what Postgres cannot read.
	if err != nil || b.List != l.name || !l.id.MatchString(b.ID) || b.Time.UTC().Year() < 1 || b.Pinned.UTC().Year() < 1 {
		return bookmark{}, fault.New(fault.Invalid, "page_token: it is not one this server made for this list",
			"leave it out to start at the first page").Because(err)
	}
	return b, nil
}

// cut takes rows that were read one too many down to a page, and makes the token of the next one.
func cut[Row any](l list, rows []Row, size int, place func(Row) bookmark) ([]Row, string) {
	if len(rows) <= size {
		return rows, ""
	}
	rows = rows[:size]
	return rows, l.token(place(rows[size-1]))
}

// token is the token of the page that starts behind a place.
func (l list) token(b bookmark) string {
	b.List = l.name
	text, err := json.Marshal(b)
	if err != nil {
		panic(err) // a plain struct of ours
	}
	return base64.RawURLEncoding.EncodeToString(text)
}
