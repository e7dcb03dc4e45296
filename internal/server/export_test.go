package server

import (
	"context"
	"net/http"
	"slices"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/httpd"
)

// StartLimited is like [Start], with limits on clients.
var StartLimited = startLimited

// BoundBodies returns a handler whose requests have limited bodies.
func BoundBodies(who func(context.Context, http.Header) (auth.Principal, error), memory *httpd.Memory, next http.Handler) http.Handler {
	return bodies{who, memory}.bound(next, refuseForm)
}

// NewerRunner makes the runner of this program's servers a different program that does the same.
func NewerRunner() {
	older := runnerOf
	runnerOf = func(goarch string) []byte { return append(slices.Clip(older(goarch)), "newer"...) }
}

// LocalURL returns the URL at which programs on this machine reach a server.
var LocalURL = localURL

// LockDirectory locks a data directory, which it creates if necessary. It returns the cleanup of a failed start.
func LockDirectory(path string) (release func(), err error) {
	dir, err := openDirectory(path)
	if err != nil {
		return nil, err
	}
	return dir.close, nil
}
