package server

import (
	"context"
	"net/http"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/httpd"
)

// StartLimited is [Start] with limits of what clients may take.
var StartLimited = startLimited

// BoundBodies is a handler whose requests' bodies are bounded.
func BoundBodies(who func(context.Context, http.Header) (auth.Principal, error), memory *httpd.Memory, next http.Handler) http.Handler {
	return bodies{who, memory}.bound(next, refuseForm)
}

// LocalURL is the address by which programs on this machine reach a server.
var LocalURL = localURL
