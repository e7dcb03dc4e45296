package sandbox

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/fault"
)

// lockingServer is one server's locks, and a connection that can break theirs.
type lockingServer struct {
	*locks
	t     *testing.T
	owner *pgx.Conn
}

// lockingServers returns the locks of two servers on one database.
func lockingServers(t *testing.T) (a, b *lockingServer) {
	t.Helper()
	d := dbtest.Reuse(t, 1)
	owner := d.Owner(t)
	return &lockingServer{newLocks(d.DB.Pool()), t, owner}, &lockingServer{newLocks(d.DB.Pool()), t, owner}
}

// takes takes a lock that must be free.
func (s *lockingServer) takes(id string) (unlock func()) {
	s.t.Helper()
	unlock, got, err := s.tryLock(s.t.Context(), id)
	if err != nil || !got {
		s.t.Fatalf("the lock %s is not taken: %v", id, err)
	}
	return unlock
}

// mayNotTake checks that somebody has a lock.
func (s *lockingServer) mayNotTake(id string) {
	s.t.Helper()
	unlock, got, err := s.tryLock(s.t.Context(), id)
	if err != nil || got {
		s.t.Errorf("the lock %s is taken: %t, %v", id, got, err)
	}
	if got {
		unlock()
	}
}

// breaks breaks the connection, which the next query finds.
func (s *lockingServer) breaks() {
	s.t.Helper()
	if _, err := s.owner.Exec(s.t.Context(), "select pg_terminate_backend($1, 10000)", int(s.conn.PgConn().PID())); err != nil {
		s.t.Fatal(err)
	}
}

// finds uses the connection, which broke.
func (s *lockingServer) finds() {
	s.t.Helper()
	if _, _, err := s.tryLock(s.t.Context(), "another"); fault.CodeOf(err) != fault.Unavailable {
		s.t.Fatalf("a lock on a connection that broke: %v", err)
	}
}

func TestALockWhoseConnectionBroke(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"is still held on its server": func(t *testing.T) {
			a, _ := lockingServers(t)
			unlock := a.takes("box")
			a.breaks()
			a.mayNotTake("box")
			a.finds()
			a.mayNotTake("box")
			other := a.takes("other")
			a.mayNotTake("box")
			other()
			unlock()
			a.takes("box")()
		},
		"is held by the next connection, once": func(t *testing.T) {
			a, b := lockingServers(t)
			unlock := a.takes("box")
			a.breaks()
			a.finds()
			for range 3 {
				a.takes("other")()
			}
			b.mayNotTake("box")
			unlock()
			b.takes("box")()
		},
		"and that another server got is released by each for itself": func(t *testing.T) {
			a, b := lockingServers(t)
			unlock := a.takes("box")
			a.breaks()
			unlockB := b.takes("box")
			a.finds()
			other := a.takes("other")
			a.mayNotTake("box")
			unlock()
			a.mayNotTake("box")
			unlockB()
			a.takes("box")()
			other()
		},
		"and that another server got is taken again when that one is done": func(t *testing.T) {
			a, b := lockingServers(t)
			unlock := a.takes("box")
			a.breaks()
			unlockB := b.takes("box")
			a.finds()
			other := a.takes("other")
			unlockB()
			a.takes("third")()
			b.mayNotTake("box")
			other()
			b.mayNotTake("box")
			unlock()
			b.takes("box")()
		},
		"goes to who waits for it after it is released": func(t *testing.T) {
			a, _ := lockingServers(t)
			unlock := a.takes("box")
			held, got := true, make(chan error, 1)
			go func() {
				next, err := a.lock(t.Context(), "box")
				if err == nil && held {
					t.Error("two hold the lock")
				}
				if err == nil {
					next()
				}
				got <- err
			}()
			a.breaks()
			a.finds()
			a.takes("other")()
			held = false
			unlock()
			if err := <-got; err != nil {
				t.Error(err)
			}
		},
		"leaves no connection open when all are released": func(t *testing.T) {
			a, _ := lockingServers(t)
			unlock, another := a.takes("box"), a.takes("other")
			a.breaks()
			unlock()
			another()
			if a.conn != nil || len(a.held) != 0 {
				t.Errorf("the connection is open: %t; held: %v", a.conn != nil, a.held)
			}
			a.takes("box")()
			if a.conn != nil || len(a.held) != 0 {
				t.Errorf("afterwards, the connection is open: %t; held: %v", a.conn != nil, a.held)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}
