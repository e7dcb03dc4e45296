package db

import (
	"context"
	"encoding/hex"
)

// Credential says with which credential somebody makes a request. The audit logs of houses record it.
type Credential struct {
	// Agent is the uuid of the person or bot.
	Agent string
	// Via is how they speak: "browser", "cli", "api", or "token" for the token of a thread.
	Via string
	// Key is the name of the API key; empty for other credentials.
	Key string
}

type credentialKey struct{}

// WithCredential returns a context in which the transactions of c's agent record c.
func WithCredential(ctx context.Context, c Credential) context.Context {
	return context.WithValue(ctx, credentialKey{}, c)
}

func credentialIn(ctx context.Context) Credential {
	c, _ := ctx.Value(credentialKey{}).(Credential)
	return c
}

// statement returns the part of a transaction's first statement that sets the credential. It is empty if another agent
// than c's acts. Hexadecimal digits need no quotation, whatever the name of the key is.
func (c Credential) statement(agent string) string {
	if agent == "" || c.Agent != agent {
		return ""
	}
	return "; set local app.via = '" + hex.EncodeToString([]byte(c.Via)) + ":" + hex.EncodeToString([]byte(c.Key)) + "'"
}
