package rpc

import (
	"encoding/base64"
	"encoding/json"
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

// page cuts rows that were read one too many down to a page, and makes the token of the next one.
func page[Row, Place any](rows []Row, size int, place func(Row) Place) ([]Row, string) {
	if len(rows) <= size {
		return rows, ""
	}
	rows = rows[:size]
	text, err := json.Marshal(place(rows[size-1]))
	if err != nil {
		panic(err) // places are plain structs of ours
	}
	return rows, base64.RawURLEncoding.EncodeToString(text)
}

// place reads a page's token; first is the place of an empty one.
func place[Place any](token string, first Place) (Place, error) {
	if token == "" {
		return first, nil
	}
	var p Place
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return first, fault.New(fault.Invalid, "page_token: it is not one this server made", "leave it out to start at the first page").Because(err)
	}
	return p, nil
}

// cursorAt is the place of a row in lists ordered by time and id.
func cursorAt(t time.Time, id string) db.Cursor { return db.Cursor{Time: t, ID: id} }
