package server

import (
	"context"
	"net/http"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/httpd"
)

// StartLimited is [Start] with limits on what clients may use.
var StartLimited = startLimited

// BoundBodies returns a handler whose requests have limited bodies.
func BoundBodies(who func(context.Context, http.Header) (auth.Principal, error), memory *httpd.Memory, next http.Handler) http.Handler {
	return bodies{who, memory}.bound(next, refuseForm)
}

// LocalURL returns the URL with which programs on this machine reach a server.
var LocalURL = localURL
