package server

import (
	"context"
	"net/http"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/door"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/gateway"
	"github.com/arbe-dev/arbe/internal/gitdoor"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// relaying makes a driver that was opened pass on connections from inside boxes.
func (s *Server) relaying(d sandbox.Driver, err error) (sandbox.Driver, error) {
	if relaying, ok := d.(sandbox.Relaying); ok && err == nil {
		relaying.OnDoor(s.takeFromBox)
	}
	return d, err
}

// relayingAccounts returns the accounts that houses may bring, whose drivers pass on connections from inside boxes.
func (s *Server) relayingAccounts() map[string]sandbox.Account {
	of := houseAccounts(&s.cfg)
	for name, account := range of {
		open := account.Open
		account.Open = func(key string) (sandbox.Driver, error) { return s.relaying(open(key)) }
		of[name] = account
	}
	return of
}

// boxDoors serves the doors for programs in boxes, which need no network. A box may run anything, so it gets only the access
// of a thread token of its own house, and the repositories that its environment allows. It gets no services, no web app, and
// no access with a credential that is not meant for boxes.
type boxDoors struct {
	authenticate    func(context.Context, string) (auth.Principal, error)
	streams, models http.Handler
	git             *gitdoor.Door
}

func (b boxDoors) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var to http.Handler
	switch {
	case gitdoor.Serves(r):
		if from, _ := boxOf(r.Context()); from.Environment != "" {
			b.git.Serve(w, r, from.House, from.Environment)
		} else { // its connection does not say which box it is
			b.git.ServeToken(w, r, from.House)
		}
		return
	case door.Serves(r):
		to = b.streams
	case gateway.Serves(r):
		to = b.models
	default:
		refuseBox(w, r, fault.New(fault.NotFound, "sandboxes reach only the streams and the models of this server", "use a path under "+door.Prefixes[0]+" or "+gateway.Prefix))
		return
	}
	if err := b.check(r); err != nil {
		refuseBox(w, r, err)
		return
	}
	to.ServeHTTP(w, r)
}

// check returns an error unless a request has a thread token of its box's house.
func (b boxDoors) check(r *http.Request) error {
	token, cookie := credential(r)
	if token == "" || cookie {
		return fault.New(fault.Unauthenticated, "the request has no bearer token", "send a thread token as Authorization: Bearer TOKEN")
	}
	p, err := b.authenticate(r.Context(), token)
	if err != nil {
		return err
	}
	from, _ := boxOf(r.Context())
	if p.Thread == "" || p.House != from.House {
		return fault.New(fault.Forbidden, "from inside a sandbox, only thread tokens of its house are accepted", "create one with: arbe token create THREAD")
	}
	return nil
}

func refuseBox(w http.ResponseWriter, r *http.Request, err error) {
	f := fault.From(err)
	fault.Answer(w, r, f.Code.HTTPStatus(), f.Code, f.BodyFor(r))
}
