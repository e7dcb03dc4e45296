package db

import (
	"maps"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// PermissionChannel is the channel on which the database notifies all servers of changes of permission. A payload
	// is one word of notify_permission (migrations/000007_permission.up.sql).
	PermissionChannel = "arbe_permission"
	// EverythingChanged is the word that stands for all words.
	EverythingChanged = "*"
	// permissionNotice is the SQLSTATE of the notices that give the same words to the connection that makes the change,
	// because the notification may arrive only after [DB.In] has returned.
	permissionNotice = "AR001"
	// maxWords is how many words of one transaction are kept, so that a large one cannot fill the memory. More count as
	// EverythingChanged.
	maxWords = 1000
)

// permissions holds the functions to call when this server changes permission.
type permissions struct {
	mu        sync.Mutex
	next      int
	listeners map[int]func(words []string)
}

func (p *permissions) notify(words []string) {
	p.mu.Lock()
	// The functions run without the lock, because one that stops listening takes it.
	all := slices.Collect(maps.Values(p.listeners))
	p.mu.Unlock()
	for _, f := range all {
		f(words)
	}
}

// wordsKey is the key in a connection's custom data.
const wordsKey = "arbe.permission"

// keepNotice stores the word of a notice with its connection until takeNotices.
func keepNotice(c *pgconn.PgConn, n *pgconn.Notice) {
	if n.Code != permissionNotice {
		return
	}
	words, _ := c.CustomData()[wordsKey].([]string)
	if len(words) == maxWords {
		words = []string{EverythingChanged}
	}
	c.CustomData()[wordsKey] = append(words, n.Message)
}

// takeNotices returns the words that a connection received since the last call.
func takeNotices(c *pgxpool.Conn) []string {
	data := c.Conn().PgConn().CustomData()
	words, _ := data[wordsKey].([]string)
	if words != nil {
		delete(data, wordsKey)
	}
	return words
}
