package web

import (
	"context"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/transcript"
)

// liveThread is one browser watching one thread.
type liveThread struct {
	app    *app
	conn   *liveConn
	topic  topic
	thread *arbev1.Thread
	people *people
	log    *transcript.Live
	typing *typists
	// me is the reader's id, which is looked up when it is first needed. accompanied reports that the page shows others who
	// are here, and greeted that it was told who is here.
	me                   string
	accompanied, greeted bool
}

// reader returns the id of the reader.
func (l *liveThread) reader(ctx context.Context) (string, error) {
	if l.me == "" {
		res, err := l.app.services.agents.WhoAmI(ctx, &arbev1.WhoAmIRequest{})
		if err != nil {
			return "", err
		}
		l.me = res.GetAgent().GetId()
	}
	return l.me, nil
}
