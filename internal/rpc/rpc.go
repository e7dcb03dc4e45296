// Package rpc is arbe's service layer: the Connect services of proto/arbe/v1, one file each.
//
// A method authorizes once ([auth.Auth.Authorize]), calls the domain and converts the result. Domain values and wire messages
// meet only here (convert.go). Every door, including the web app, goes through these services, except the doors that move raw
// bytes.
package rpc

import (
	"context"
	"log/slog"
	"time"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/harness"
	"github.com/arbe-dev/arbe/internal/house"
	"github.com/arbe-dev/arbe/internal/inbox"
	"github.com/arbe-dev/arbe/internal/live"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/oidc"
	"github.com/arbe-dev/arbe/internal/port"
	"github.com/arbe-dev/arbe/internal/push"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// Services holds the parts that the service layer needs. All fields up to Logger are required.
type Services struct {
	DB         *db.DB
	Auth       *auth.Auth
	Login      *oidc.Provider // nil if the server has none
	Houses     *house.Houses
	Bots       *bot.Bots
	Threads    *thread.Threads
	Log        *stream.Log
	Live       *live.Pictures
	Inboxes    *inbox.Inboxes
	Pusher     *push.Pusher
	Boxes      *sandbox.Resolver
	Ports      *port.Ports
	Dispatcher *dispatch.Dispatcher
	Artifacts  *artifact.Artifacts
	Secrets    *secret.Secrets
	Models     *model.Houses
	Logger     *slog.Logger
	// Agents are the coding agents that can do bots' work, in the order in which clients show them.
	Agents []harness.Info
	// Observe, unless nil, is called after each call with its procedure, its code ("ok" or the code of its error) and its
	// duration.
	Observe func(spec connect.Spec, code string, took time.Duration)
	// Ready returns an error if the server is not ready for requests. If Ready is nil, the server is always ready.
	Ready func(context.Context) error
}
