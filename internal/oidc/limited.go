package oidc

import (
	"errors"
	"io"
	"net/http"
)

// maxAnswer limits an answer of the provider, in bytes.
const maxAnswer = 1 << 20

// limited is a transport that limits the size of answers.
type limited struct{ http.RoundTripper }

// RoundTrip makes a request. Reading more of its answer than [maxAnswer] is an error.
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := l.RoundTripper.RoundTrip(r)
	if err == nil {
		res.Body = &limitedBody{res.Body, maxAnswer}
	}
	return res, err
}

type limitedBody struct {
	io.ReadCloser
	left int
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errors.New("the answer of the login provider is too large")
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
