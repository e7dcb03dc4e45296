package model

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// protocol has the differences between dialects.
type protocol struct {
	// path returns the path of a prompt below the endpoint's root, and write its body.
	path  func(prompt) string
	write func(prompt) any
	// reader reads the answer into a stream.
	reader func(*stream) reader
}

// protocol returns the protocol of the dialect. An unknown dialect is an error.
func (d Dialect) protocol() (protocol, error) {
	at := func(path string) func(prompt) string { return func(prompt) string { return path } }
	switch d {
	case Messages:
		return protocol{at("/v1/messages"), writeMessages, newMessagesReader}, nil
	case Chat:
		return protocol{at("/chat/completions"), writeChat, newChatReader}, nil
	case Responses:
		return protocol{at("/responses"), writeResponses, newResponsesReader}, nil
	case Gemini:
		return protocol{geminiPath, writeGemini, newGeminiReader}, nil
	}
	return protocol{}, fmt.Errorf("there is no dialect %q", d)
}

// request returns the request of a prompt, without the key.
func (d protocol) request(ctx context.Context, p prompt) (*http.Request, error) {
	path := d.path(p)
	switch {
	case slices.Contains(strings.Split(path, "/"), ".."): // the id of a model may contain slashes
		return nil, errors.New("it is not the id of a model")
	case p.endpoint.Provider == Google && strings.Contains(p.model, "claude"):
		return nil, errors.New("it has none of Anthropic's models") // its cloud has them, at another address
	}
	body, err := marshal(d.write(p))
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.endpoint.root()+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json") // as the providers' own clients do
	return r, nil
}
